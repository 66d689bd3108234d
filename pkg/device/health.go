package device

import "fmt"

// Health is one reading as the kubelet writes it in
// status.containerStatuses[].allocatedResourcesStatus (KEP-4680).
type Health string

const (
	// Healthy says that the driver or plugin reports no fault. It is necessary
	// for giving a device back and never sufficient.
	Healthy Health = "Healthy"
	// Unknown says that nothing is known: the driver is silent, gone, or has no
	// health service. It is no fault and justifies no eviction.
	Unknown Health = "Unknown"
	// Unhealthy says that the driver or plugin reports a fault.
	Unhealthy Health = "Unhealthy"
)

// ParseHealth refuses what the API server would refuse too.
func ParseHealth(text string) (Health, error) {
	switch h := Health(text); h {
	case Healthy, Unknown, Unhealthy:
		return h, nil
	}
	return "", fmt.Errorf("health %q: want Healthy, Unknown or Unhealthy", text)
}

func (h Health) rank() int {
	switch h {
	case Healthy:
		return 1
	case Unknown:
		return 2
	case Unhealthy:
		return 3
	}
	return 0
}

// WorseThan orders Healthy, Unknown, Unhealthy. The empty value, no reading at
// all, is better than any of them.
func (h Health) WorseThan(other Health) bool { return h.rank() > other.rank() }

// Worst returns the worse of two readings.
func Worst(a, b Health) Health {
	if b.WorseThan(a) {
		return b
	}
	return a
}
