package main

import "time"

// What befalls a fleet is drawn before it begins, and doesn't depend on what a policy does
// about it: every policy meets the same troubles.

// trouble is something that happens at a time.
type trouble struct {
	at time.Duration
	do func(*world)
}

// troubles draws everything that happens until the end.
func (w *world) troubles(end time.Duration) []trouble {
	var all []trouble
	add := func(at time.Duration, do func(*world)) { all = append(all, trouble{at, do}) }
	each := func(c *chance, every time.Duration, happens func(at time.Duration)) {
		for at := c.exponential(every); at < end; at += c.exponential(every) {
			happens(at)
		}
	}
	r := w.rates
	for _, n := range w.nodes {
		w.nodeTroubles(n, each, add)
	}
	for _, u := range w.units {
		c := stream(w.seed, "alarms", uint64(u.number))
		each(c, r.every(falseAlarms, 1), func(at time.Duration) {
			said := saysFatal
			if c.share() < r.of[falseHinted] {
				said = saysHinted
			}
			text, lasts := said[c.below(len(said))], c.lognormal(r.lasts[falseFor], 1.5)
			add(at, func(w *world) { w.falseAlarm(u, text, lasts) })
		})
		g := stream(w.seed, "glitches", uint64(u.number))
		each(g, r.every(glitches, 1), func(at time.Duration) {
			lasts := g.lognormal(r.lasts[glitchFor], 1.2)
			add(at, func(w *world) { w.glitches(u, lasts) })
		})
	}
	for rack := range w.shape.racks {
		c := stream(w.seed, "racks", uint64(rack))
		each(c, r.every(rackLosses, 1), func(at time.Duration) {
			lasts := c.lognormal(r.lasts[rackFor], 0.7)
			add(at, func(w *world) { w.rackLost(rack, lasts) })
		})
		p := stream(w.seed, "partitions", uint64(rack))
		each(p, r.every(partitions, 1), func(at time.Duration) {
			lasts := p.lognormal(r.lasts[partitionFor], 1)
			add(at, func(w *world) { w.rackCut(rack, lasts) })
		})
	}
	for i, driver := range []string{driverOne, driverTwo} {
		if nodes := nodesOf(w.nodes, driver); len(nodes) > 0 {
			w.upgradeTroubles(nodes, stream(w.seed, "upgrades", uint64(i)), each, add)
		}
	}
	c := stream(w.seed, "api")
	each(c, r.every(apiOutages, 1), func(at time.Duration) {
		lasts := c.lognormal(r.lasts[apiFor], 1)
		add(at, func(w *world) { w.apiLost(lasts) })
	})
	return all
}

// nodeTroubles draws what befalls a node and its devices.
func (w *world) nodeTroubles(n *node, each func(*chance, time.Duration, func(time.Duration)), add func(time.Duration, func(*world))) {
	r, c := w.rates, stream(w.seed, "faults", uint64(n.number))
	each(c, r.every(faults, n.lemon*float64(len(n.units))), func(at time.Duration) {
		u, what := n.units[c.below(len(n.units))], told
		kind, text := c.share(), saysFatal[c.below(len(saysFatal))]
		hinted := saysHinted[c.below(len(saysHinted))]
		accuses, broken := false, []*unitOf{u}
		for _, share := range []struct {
			of rateKey
			do func()
		}{
			{faultSilent, func() { what = silent }},
			{faultHung, func() { what = hung }},
			{faultHinted, func() { text = hinted }},
			{faultAccuses, func() { accuses = true }},
			{faultWhole, func() { broken = n.units }},
		} {
			if kind < r.of[share.of] {
				share.do()
				break
			}
			kind -= r.of[share.of]
		}
		for _, u := range broken {
			add(at, func(w *world) { w.breaks(u, what, text, accuses) })
		}
	})
	s := stream(w.seed, "crashes", uint64(n.number))
	each(s, r.every(crashes, 1), func(at time.Duration) {
		lasts := s.lognormal(r.lasts[crashFor], 1.5)
		add(at, func(w *world) { w.silence(n, lasts) })
	})
	f := stream(w.seed, "flaps", uint64(n.number))
	each(f, r.every(flaps, 1), func(at time.Duration) {
		for end := at + 4*time.Hour; at < end; at += f.between(5*time.Minute, 20*time.Minute) {
			lasts := f.between(time.Minute, 3*time.Minute)
			add(at, func(w *world) { w.silence(n, lasts) })
		}
	})
	k := stream(w.seed, "kubelets", uint64(n.number))
	each(k, r.every(kubelets, 1), func(at time.Duration) {
		lasts := k.between(time.Minute, 3*time.Minute)
		add(at, func(w *world) { w.kubeletRestarts(n, lasts) })
	})
}

// upgradeTroubles draws the upgrades of a driver on its nodes, and of those whose new
// version is bad the way back.
func (w *world) upgradeTroubles(nodes []*node, c *chance, each func(*chance, time.Duration, func(time.Duration)), add func(time.Duration, func(*world))) {
	// Bad versions are few: they come as evenly as their share lets.
	r, version, due := w.rates, 1, c.share()
	each(c, r.every(upgrades, 1), func(at time.Duration) {
		version++
		due += r.of[badVersions]
		bad, together := due >= 1, 1
		if bad {
			due--
		}
		if c.share() < 0.5 {
			together = max(len(nodes)/10, 1)
		}
		stop := at + year
		if bad {
			stop = at + c.lognormal(r.lasts[rollback], 0.5)
		}
		v := version
		for i := 0; i < len(nodes) && at < stop; i += together {
			for _, n := range nodes[i:min(i+together, len(nodes))] {
				lasts := c.between(2*time.Minute, 6*time.Minute)
				add(at, func(w *world) { w.upgraded(n, v, bad, lasts) })
				if bad {
					back := c.between(2*time.Minute, 6*time.Minute)
					add(max(stop, at+lasts), func(w *world) { w.upgraded(n, v-1, false, back) })
				}
			}
			at += 6 * time.Minute
		}
	})
}
