package reason_test

import (
	"slices"
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/reason"
)

// Q7. The shapes in which drivers, plugins, the kernel log and node agents write
// an Xid.
func TestXidsAreFoundInEveryShapeInWhichDriversWriteThem(t *testing.T) {
	tests := map[string][]int{
		"XID 79: GPU has fallen off the bus": {79},
		"XID 79":                             {79},
		"xid48":                              {48},
		"xid79":                              {79},
		"xid=79":                             {79},
		"xid: 79":                            {79},
		"xid:79":                             {79},
		"XID_79":                             {79},
		"Xid-79":                             {79},
		"XID #79":                            {79},
		"Xid (79)":                           {79},
		"Xid [79]":                           {79},
		"xid 079":                            {79},
		"critical Xid error 79":              {79},
		"Xid error code 79, GPU lost":        {79},
		"Xid critical error: 79":             {79},
		"critical XID 48 reported by NVML":   {48},
		"non-fatal XID 31 reported by NVML":  {31},
		"XidCriticalError: Xid=79 on Device=GPU-5f1c":                      {79},
		"NvidiaXID79Error":                                                 {79},
		"NVRM: Xid (PCI:0000:5e:00): 79, pid=1234, name=python":            {79},
		"NVRM: Xid (0000:03:00): 13, 0003 00000000 000090c0 00000b9c":      {13},
		"Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked": {63},
		"NVRM: Xid (43, pid: 5678): RESETCHANNEL_VERIF_ERROR":              {43},
		"Xids 48, 63 and 64":                                               {48, 63, 64},
		"XIDs: 48,63":                                                      {48, 63},
		"Xid 48 then Xid 63 then Xid 48":                                   {48, 63},
		"xid 48 xid 63":                                                    {48, 63},
		"SXid (PCI:0000:c3:00.0): 12028, Non-fatal, Link 32":               nil,
		"taxid 79":                               nil,
		"xid":                                    nil,
		"Xid pending, see 79":                    nil,
		"Xid 0":                                  nil,
		"Xid 99999999999999999999":               nil,
		"Xid (PCI:0000:5e:00): abc, pid=2280636": nil,
		"":                                       nil,
		"no such thing":                          nil,
		"GPU-79 is fine":                         nil,
		"Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)": {154},
	}
	for message, want := range tests {
		t.Run(message, func(t *testing.T) {
			if got := reason.Xids(message); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}
