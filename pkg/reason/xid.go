package reason

// The NVIDIA Xid classes.
//
// What each number means and the immediate action are those of NVIDIA's Xid
// catalogue (docs.nvidia.com/deploy/xid-errors, "Analyzing Xid Errors with the
// Xid Catalog"; the list that NVIDIA/NVSentinel ships as xiderrorsmapping.csv).
// Tools disagree on some numbers, and none of them is taken as the truth:
//
//   - NVIDIA/k8s-device-plugin internal/rm/health.go and
//     kubernetes-sigs/dra-driver-nvidia-gpu device_health.go ignore 13, 31, 43,
//     45, 68 and 109 and call a device Unhealthy for all others.
//   - aws/eks-node-monitoring-agent WellKnownXidCodes takes 46, 48, 54, 62–64, 74,
//     79, 95, 109, 110, 119, 120, 136, 140, 142, 143, 151, 155, 156, 158 for fatal.
//   - GKE's plugin acts on 48 only, unless told otherwise.

import (
	"fmt"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// xidClass is a group of Xids that mean the same to Sickbay.
type xidClass struct {
	xids    []int
	code    Code
	meaning string
	// bucket is NVIDIA's resolution bucket: the immediate action.
	bucket  string
	verdict Verdict
	// message narrows the class to texts that match.
	message string
	// label tells a narrowed rule's name from the plain one's.
	label string
}

// nvidiaXids returns one rule for each Xid (and each narrowed class).
func nvidiaXids() []Rule {
	var rules []Rule
	for _, class := range xidClasses() {
		for _, xid := range class.xids {
			name := fmt.Sprintf("nvidia/xid-%d", xid)
			if class.label != "" {
				name += "-" + class.label
			}
			rules = append(rules, Rule{
				Name: name, Xids: []int{xid}, Message: class.message,
				Code: class.code, Verdict: class.verdict,
				Meaning: class.meaning, Source: "NVIDIA Xid catalogue: " + class.bucket,
			})
		}
	}
	return rules
}

// span lists the numbers from first to last.
func span(first, last int) []int {
	var xids []int
	for n := first; n <= last; n++ {
		xids = append(xids, n)
	}
	return xids
}

func list(groups ...[]int) []int {
	var xids []int
	for _, g := range groups {
		xids = append(xids, g...)
	}
	return xids
}

// xidClasses is the table. The first class that fits a message counts.
func xidClasses() []xidClass {
	var (
		// An application's error: noted against the workload.
		blame = Verdict{SeverityNote, ActionBlameWorkload, ClosesByGates, device.ScopeInstance}
		// Neither the device's nor the workload's fault.
		ignore = Verdict{SeverityNote, ActionIgnore, ClosesByGates, device.ScopeInstance}
		// Contained: the application restarts, repetitions are counted.
		watch = Verdict{SeverityMinor, ActionWatch, ClosesByGates, device.ScopeInstance}
		// The same, of the whole chip.
		watchChip = Verdict{SeverityMinor, ActionWatch, ClosesByGates, device.ScopeChip}
		// Out at once, back after a reset and the gates.
		reset = Verdict{SeverityMajor, ActionQuarantine, ClosesByReset, device.ScopeChip}
		// Serious if it lasts; the number alone doesn't say.
		suspect = Verdict{SeverityMajor, ActionSuspect, ClosesByReset, device.ScopeChip}
		// Out at once, and somebody has to decide.
		operator = Verdict{SeverityMajor, ActionQuarantine, ClosesByOperator, device.ScopeChip}
		// Out at once, and hands are needed.
		repair = Verdict{SeverityMajor, ActionQuarantine, ClosesByRepair, device.ScopeChip}
		fatal  = Verdict{SeverityFatal, ActionQuarantine, ClosesByRepair, device.ScopeChip}
	)
	return []xidClass{
		// Applications.
		{xids: []int{13}, code: "XidGraphicsEngineException", bucket: "RESTART_APP, then WORKFLOW_XID_13", verdict: blame,
			meaning: "Graphics engine exception: an out-of-bounds access or illegal instruction of the application. Bad hardware only if it repeats on the same units."},
		{xids: []int{31}, code: "XidMemoryPageFault", bucket: "RESTART_APP, then WORKFLOW_XID_31", verdict: blame,
			meaning: "GPU memory page fault: an illegal address of the application."},
		{xids: []int{43}, code: "XidChannelReset", bucket: "IGNORE", verdict: blame,
			meaning: "GPU stopped processing: the application hit an error and its channel was reset."},
		{xids: []int{45}, code: "XidPreemptiveRemoval", bucket: "WORKFLOW_XID_45", verdict: blame,
			meaning: "Preemptive cleanup after an earlier error, or because the application was ended. The other Xid, if any, counts."},
		{xids: []int{68}, code: "XidVideoDecoderException", bucket: "RESTART_APP", verdict: blame,
			meaning: "Video decoder (NVDEC0) exception. NVIDIA's catalogue and its plugins take it for the application's."},
		{xids: []int{11, 25, 32, 69, 80}, code: "XidInvalidCommandStream", bucket: "RESTART_APP, then CHECK_APP/CUDA", verdict: blame,
			meaning: "Invalid or corrupted push buffer stream, illegal class or notify: the application or its libraries."},

		// Contained, or worth counting.
		{xids: []int{94}, code: "XidContainedMemoryError", bucket: "RESTART_APP", verdict: watch,
			meaning: "Contained uncorrectable ECC error: one application is lost and has to restart, the others go on."},
		{xids: []int{8}, code: "XidChannelIdleTimeout", bucket: "RESTART_APP, then CONTACT_SUPPORT", verdict: watch,
			meaning: "GPU stopped processing: a channel didn't become idle in time."},
		{xids: list(span(39, 41), span(70, 72), span(75, 77), []int{85}, span(126, 135)), code: "XidCopyEngineError", bucket: "RESTART_APP, then CONTACT_SUPPORT", verdict: watch,
			meaning: "Copy engine exception."},
		{xids: list([]int{60}, span(82, 84), []int{86, 88, 89}, span(96, 105), []int{139}), code: "XidMediaEngineError", bucket: "RESTART_APP, then CONTACT_SUPPORT", verdict: watch,
			meaning: "Exception of a video decoder, JPEG, optical flow or security engine."},
		{xids: []int{37, 38, 44, 66, 67, 141}, code: "XidContextSwitchWarning", bucket: "IGNORE", verdict: watch,
			meaning: "Fault while contexts were switched, or a firmware warning; contained."},
		{xids: []int{92}, code: "XidHighSingleBitErrorRate", bucket: "IGNORE, then CONTACT_SUPPORT", verdict: watchChip,
			meaning: "High rate of corrected single-bit ECC errors."},
		{xids: []int{93, 157, 160, 161, 168}, code: "XidRetirementNotice", bucket: "IGNORE", verdict: watchChip,
			meaning: "A limit of the information ROM, a retired channel, a retirement that failed, or reduced memory capacity."},
		{xids: []int{108, 121, 137}, code: "XidLinkNotice", bucket: "IGNORE", verdict: watchChip,
			meaning: "Error on an NVLink or C2C link that the sender's side has to be asked about."},
		{xids: span(162, 165), code: "XidPowerSmoothingNotice", bucket: "no action is given", verdict: watchChip,
			meaning: "The power smoothing controller was switched, or its lifetime runs out."},
		{xids: []int{14, 106, 107}, code: "XidTestMessage", bucket: "IGNORE", verdict: ignore,
			meaning: "A test message."},

		// Memory.
		{xids: []int{48}, code: "XidDoubleBitEcc", bucket: "WORKFLOW_XID_48: drain and reset", verdict: reset,
			meaning: "Double-bit ECC error: uncorrectable."},
		{xids: []int{63}, code: "XidRowRemapPending", bucket: "IGNORE; EC2 replaces the instance", verdict: Verdict{SeverityMinor, ActionQuarantine, ClosesByReset, device.ScopeChip},
			meaning: "A memory row was marked for remapping, or a page retired. It takes effect at the next reset, so the device leaves at the next chance; tools disagree."},
		{xids: []int{64}, code: "XidRowRemapFailed", bucket: "RESET_GPU", verdict: reset,
			meaning: "A memory row couldn't be remapped, or a page not retired."},
		{xids: []int{95}, code: "XidUncontainedMemoryError", bucket: "RESET_GPU", verdict: reset,
			meaning: "Uncontained uncorrectable ECC error: all applications on the chip are hit."},
		{xids: []int{140}, code: "XidUnrecoveredEcc", bucket: "RESET_GPU", verdict: reset,
			meaning: "Unrecovered ECC error."},
		{xids: []int{171, 172}, code: "XidUncorrectableEccDetail", bucket: "no action is given", verdict: suspect,
			meaning: "Uncorrectable ECC error in DRAM (171) or SRAM (172). Newer drivers say it beside the Xid that tells whether it was contained."},
		{xids: []int{156}, code: "XidResourceRetired", bucket: "RESET_GPU", verdict: reset,
			meaning: "A part of the chip was retired; a reset makes it effective."},

		// The chip and its firmware.
		{xids: []int{79}, code: "XidFallenOffBus", bucket: "RESTART_BM", verdict: fatal,
			meaning: "The GPU has fallen off the bus."},
		{xids: []int{46, 109, 158}, code: "XidEngineTimeout", bucket: "RESET_GPU", verdict: reset,
			meaning: "The GPU or one of its engines stopped answering; 109 is a context switch timeout. NVIDIA's plugins ignore 109, its catalogue asks for a reset."},
		{xids: []int{62}, code: "XidMicrocontrollerHalt", bucket: "RESET_GPU", verdict: reset,
			meaning: "The internal micro-controller halted."},
		{xids: []int{119, 120}, code: "XidGspError", bucket: "RESET_GPU", verdict: reset,
			meaning: "The GSP firmware processor doesn't answer, or reports an error."},
		{xids: []int{110}, code: "XidSecurityFault", bucket: "RESET_GPU", verdict: reset,
			meaning: "Security fault."},
		{xids: []int{143}, code: "XidInitialisationFailed", bucket: "RESET_GPU", verdict: reset,
			meaning: "The GPU couldn't be initialised."},
		{xids: []int{151}, code: "XidKeyRotationError", bucket: "RESTART_VM", verdict: reset,
			meaning: "Key rotation of confidential computing failed."},
		{xids: []int{54}, code: "XidPowerNotConnected", bucket: "CHECK_MECHANICALS", verdict: repair,
			meaning: "Auxiliary power isn't connected."},
		{xids: []int{78}, code: "XidVgpuStartError", bucket: "UPDATE_SWFW", verdict: operator,
			meaning: "vGPU start error: software or firmware don't fit."},
		{xids: []int{142}, code: "XidVideoEncoderFailure", bucket: "CONTACT_SUPPORT", verdict: operator,
			meaning: "Video encoder (NVENC3) error without a known way back."},
		{xids: list([]int{61}, span(122, 125)), code: "XidMicrocontrollerWarning", bucket: "CONTACT_SUPPORT (older GPUs)", verdict: suspect,
			meaning: "Breakpoint of the internal micro-controller, or access to its flash memory failed."},
		{xids: []int{159, 167, 169}, code: "XidUncertainChipError", bucket: "CHECK_UVM (159); none is given", verdict: suspect,
			meaning: "Coherent interface error, fatal PCIe timeout, or halt of the security processor."},

		// Links.
		{xids: []int{74}, code: "XidNvlinkError", bucket: "WORKFLOW_NVLINK_ERR", verdict: reset,
			meaning: "NVLink error (up to Hopper)."},
		{xids: []int{136, 155}, code: "XidLinkFailed", bucket: "RESET_GPU", verdict: reset,
			meaning: "Link training failed, or the fabric's software defined an NVLink error."},
		{xids: list(span(144, 150), []int{166, 170}), code: "XidNvlink5Error", bucket: "WORKFLOW_NVLINK5_ERR", verdict: suspect,
			meaning: "NVLink error from Blackwell on. The same number stands for fatal and for harmless errors; the registers tell."},

		// What the driver itself asks for, about another Xid.
		{xids: []int{154}, code: "XidRecoveryActionNone", bucket: "informational", verdict: ignore,
			message: `(?i)recovery action changed from .* to 0x0 \(none\)`, label: "none",
			meaning: "The driver says that no recovery is needed any more."},
		{xids: []int{154}, code: "XidRecoveryActionReset", bucket: "informational", verdict: reset,
			message: `(?i)recovery action changed from .* to 0x[0-9a-f]+ \([^)]*(reset|flr)[^)]*\)`, label: "reset",
			meaning: "The driver asks for a reset of the GPU."},
		{xids: []int{154}, code: "XidRecoveryActionReboot", bucket: "informational", verdict: repair,
			message: `(?i)recovery action changed from .* to 0x[0-9a-f]+ \([^)]*reboot[^)]*\)`, label: "reboot",
			meaning: "The driver asks for a reboot of the node."},
		{xids: []int{154}, code: "XidRecoveryActionChanged", bucket: "informational", verdict: suspect,
			meaning: "The driver asks for another recovery action, or the text that would say which is missing."},
	}
}
