package device_test

import (
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

func TestADevicesClassesAreReadFromTheirSelectorsAndNeverGuessed(t *testing.T) {
	gpu := device.Listed{Name: "gpu-0", Attributes: map[string]string{"type": "gpu", "resource.kubernetes.io/pcieRoot": "pci0000:5d"}}
	for name, tc := range map[string]struct {
		selectors []string
		want      device.Membership
	}{
		// kubernetes-sigs/dra-example-driver, deployments/helm: deviceclass.yaml.
		"by its driver":        {[]string{`device.driver == 'gpu.example.com'`}, device.Member},
		"of another driver":    {[]string{`device.driver == "nic.example.com"`}, device.NotMember},
		"spread over lines":    {[]string{"device.driver ==\n  'gpu.example.com'\n"}, device.Member},
		"without selectors":    {nil, device.Member},
		"all have to hold":     {[]string{`device.driver == 'gpu.example.com'`, `device.driver == 'nic.example.com'`}, device.NotMember},
		"by a string of it":    {[]string{`device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].type == 'gpu'`}, device.Member},
		"of another type":      {[]string{`device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].type == 'mig'`}, device.NotMember},
		"by a standard string": {[]string{`device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:5d"`}, device.Member},
		"a string it lacks":    {[]string{`device.attributes["gpu.example.com"].productName == ""`}, device.NotMember},
		"by its capacity": {[]string{`device.driver == "gpu.example.com" && device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0`},
			device.Undecided},
		"an open question of another driver": {[]string{`device.driver == "nic.example.com" && device.attributes["nic.example.com"].rdma == true`}, device.NotMember},
		"an open question in another selector": {[]string{`device.attributes["gpu.example.com"].index > 3`, `device.driver == "nic.example.com"`},
			device.NotMember},
		"one of two":          {[]string{`device.driver == 'nic.example.com' || device.driver == 'gpu.example.com'`}, device.Undecided},
		"not that":            {[]string{`!(device.driver == 'nic.example.com')`}, device.Undecided},
		"a bracket around it": {[]string{`(device.driver == 'nic.example.com' && device.driver == 'gpu.example.com') == false`}, device.Undecided},
		"a text with an &&":   {[]string{`device.driver == "a&&b" && device.driver == "gpu.example.com"`}, device.NotMember},
		"a comparison inside of another expression": {[]string{`device.driver == "gpu.example.com" && ["x"].all(s, s == "y" && device.driver == "nic.example.com" && true) == false`}, device.Undecided},
		"beside one in brackets":                    {[]string{`device.driver == "nic.example.com" && (device.driver == "a" || true)`}, device.NotMember},
	} {
		t.Run(name, func(t *testing.T) {
			if got := device.ReadClass("c", tc.selectors).Admits("gpu.example.com", gpu); got != tc.want {
				t.Errorf("%q: %s, want %s", tc.selectors, got, tc.want)
			}
		})
	}
}
