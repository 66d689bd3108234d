package main

import (
	"math"
	"time"
)

// chance is a stream of random numbers of its own for each thing that happens, named by
// numbers: what one policy does to one device moves no draw of another, so that policies
// are compared in the same world (SplitMix64).
type chance struct{ state uint64 }

// stream is the chance of that name.
func stream(seed uint64, name string, numbers ...uint64) *chance {
	sum := uint64(14695981039346656037) ^ seed
	mix := func(n uint64) {
		sum = (sum ^ n) * 1099511628211
		sum ^= sum >> 29
	}
	for i := range len(name) {
		mix(uint64(name[i]))
	}
	for _, n := range numbers {
		mix(n)
	}
	return &chance{sum}
}

func (c *chance) next() uint64 {
	c.state += 0x9e3779b97f4a7c15
	z := c.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// share is even over [0, 1).
func (c *chance) share() float64 { return float64(c.next()>>11) / (1 << 53) }

// below is even over 0 … n−1.
func (c *chance) below(n int) int { return int(c.next() % uint64(n)) }

// between is even over [from, to).
func (c *chance) between(from, to time.Duration) time.Duration {
	return from + time.Duration(c.share()*float64(to-from))
}

// exponential has that mean: what happens at a rate, or lasts without memory.
func (c *chance) exponential(mean time.Duration) time.Duration {
	return bounded(-math.Log(1-c.share()) * float64(mean))
}

// normal has mean 0 and deviation 1 (Box-Muller).
func (c *chance) normal() float64 {
	u, v := 1-c.share(), c.share()
	return math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*v)
}

// lognormal has that median; spread is the deviation of its logarithm.
func (c *chance) lognormal(median time.Duration, spread float64) time.Duration {
	return bounded(math.Exp(spread*c.normal()) * float64(median))
}

// bounded keeps what is drawn within a second and what a duration can hold.
func bounded(d float64) time.Duration {
	return time.Duration(min(max(d, float64(time.Second)), float64(100*year)))
}

const (
	day  = 24 * time.Hour
	year = 365 * day
)
