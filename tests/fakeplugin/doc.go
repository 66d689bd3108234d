// Package fakeplugin is a device plugin (API v1beta1) for devices that do not
// exist: a process that registers resources with a real kubelet, lists their
// devices and their health, and does what a test tells it over HTTP on a
// loopback port.
//
// It owns the plugin's side of the kubelet's socket and nothing else. It must
// never read or write what Sickbay writes, never touch a Pod, and never invent
// a behaviour: each one below is something that a plugin or a kubelet was seen
// to do.
//
//	behaviour               where it is seen
//	Unhealthy, no message   the API has no field for one (deviceplugin/v1beta1
//	                        api.proto)
//	removed device          leaves the list; the kubelet then shows Healthy in
//	                        the Pod's status (devicemanager: the default for a
//	                        missing device), as recorded on 1.36 and 1.37
//	killed                  the entry stays as it was, allocatable goes to 0
//	                        after 10 s; recorded for 7.5 minutes
//	not registered again    a kubelet that starts removes the plugin's socket; a
//	                        plugin that does not watch for it stays away, and the
//	                        kubelet turns an Unhealthy into Healthy (recorded)
//	registered again        NVIDIA's plugin watches for kubelet.sock being
//	                        created and starts over
//	silence                 a wedged monitor: the stream stays open and no list
//	                        is sent
//	amnesia                 NVIDIA's plugin lists every device as Healthy when it
//	                        starts
//	two at once             two endpoints of one resource overwrite each other;
//	                        the last registration wins
//
// Device IDs are GPU-0, GPU-1, … on every node and in every resource: an ID is
// unique on its node and in its resource only, and a reader that forgets one of
// the two mixes up devices.
//
// The profile "nasty" (the default) does not register again after a kubelet
// restart and remembers nothing over its own. The profile "plain" does both.
package fakeplugin
