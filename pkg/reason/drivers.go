package reason

import "github.com/sickbay-dev/sickbay/pkg/device"

// driverMessages returns rules for texts without an Xid that DRA drivers are
// known to write. A text is taken from the driver's source, named beside it.
func driverMessages() []Rule {
	return []Rule{
		{
			// One of them is lost for good, the others are well: all go out, and
			// the gates tell which is which. A verdict that asks for hands, or
			// forbids checkpoints, would hit the innocent ones too.
			Name: "nvidia/gpu-lost", Drivers: []string{"gpu.nvidia.com"}, Message: `^GPU is lost$`, Code: "GpuLost",
			Verdict: Verdict{SeverityMajor, ActionQuarantine, ClosesByGates, device.ScopeChip},
			Meaning: "NVML lost a GPU. NVIDIA's driver says so of every GPU on the node at once, because it can't tell which.",
			Source:  "kubernetes-sigs/dra-driver-nvidia-gpu device_health_status.go",
		},
	}
}
