// Package probe is what runs in a container that was given one device: it says whether
// the container can see and open what it was given, once or for a while.
//
// It owns what counts as seen of a device (found.go), the checks (checks.go), a vendor's
// own check beside them (command.go), how often they are made (run.go), and the report
// (report.go).
//
// It knows no cluster: no API server, no Temporal, no variable of Sickbay's. What it must
// never do:
//   - pass where nothing of a device can be seen
//   - write to a device
package probe
