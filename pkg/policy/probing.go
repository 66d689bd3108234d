package policy

// ProbeSettings is what an attempt at recovery makes and runs for a device.
type ProbeSettings struct {
	// Class is the DeviceClass that our claim asks for the device by. Empty: one by which
	// the device was claimed before, and where none is known the class that has the
	// driver's name.
	Class string
	// Tolerate are the keys of the driver's own taints that our claim may have on the
	// device. Any other one keeps it out, and the attempt waits.
	Tolerate []string
	// Hold is the program that has the device through the whole attempt and does nothing
	// with it; Probe looks for what is wrong with it; Canary is a small load.
	Hold, Probe, Canary ProgramSettings
}

// ProgramSettings is a program that is run in a Pod of ours. It may write
// /dev/termination-log, which is shown, and /tmp.
type ProgramSettings struct {
	Image string
	// Command and Args are those of the container; empty are the image's own.
	Command, Args []string
}
