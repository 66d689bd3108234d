// Package fakedriver is a DRA driver for devices that do not exist: a process
// that registers with a real kubelet, publishes ResourceSlices, prepares
// claims and reports health over the kubelet's own gRPC services, and does what
// a test tells it over HTTP on a loopback port.
//
// It owns the driver's side of the kubelet's socket and nothing else. It must
// never read or write what Sickbay writes, never touch a Pod, and never invent
// a behaviour: each one below is something that a driver, a kubelet or a KEP
// was seen to do.
//
//	behaviour            where it is seen
//	health and message   KEP-4680; NVIDIA's device_health_status.go says
//	                     "critical XID 79 reported by NVML", "non-fatal XID 13
//	                     reported by NVML", "GPU is lost", "device health is
//	                     not monitored"
//	per-device timeout   DeviceHealth.health_check_timeout_seconds (dra-health
//	                     api.proto); the kubelet takes 30 s where it is absent
//	omitted device       the kubelet keeps the last word until the timeout, then
//	                     Unknown (kubelet cm/dra/healthinfo.go, phase 2)
//	silence              a wedged monitor: the stream stays open and nothing is
//	                     sent; on a real kubelet the Pod showed Unknown 79 s later
//	closed stream        the kubelet opens a new one every 5 s
//	                     (cm/dra/plugin/dra_plugin_manager.go)
//	crash                driver killed: entries stayed as they were for up to
//	                     85 s, then Unknown; the kubelet deleted the slices
//	amnesia              NVIDIA re-initialises every device as healthy when it
//	                     starts (initDeviceHealth); so did the driver of the
//	                     recorded runs
//	sticky Unhealthy     NVIDIA never clears it before the driver restarts
//	                     (updateDeviceHealth)
//	Unknown first        a Pod whose driver had not yet reported showed Unknown
//	                     for the first 71 s of the recorded run
//	lost updates         NVIDIA drops batched events when its channel is full
//	                     (sendBatchedHealthEvent); the kubelet's own channel of
//	                     100 drops likewise
//	own taints           <driver>/xid with the number as value, NoSchedule or
//	                     None by class; <driver>/gpu-lost, NoSchedule, on all
//	                     devices at once; <driver>/unmonitored, None
//	                     (device_health.go, healthEventToTaint)
//	claim-named CDI IDs  k8s.<driver>/claim=<claim uid>-<device> (cdi.go,
//	                     GetClaimDeviceName): names a claim, not a device
//	device-named CDI IDs <driver>/gpu=<device>, as recorded from a kubelet
//	overlap              a naive driver refuses to prepare a device twice and
//	                     thereby blocks tenants of an admin-access claim's
//	                     device; NVIDIA skips the check for admin claims
//	vanish, add, swap    slices republished without a device, at a new
//	                     generation; a replaced board keeps its slot and gets a
//	                     new UUID
//	partitions           counters in a slice of their own, devices per card in
//	                     the others (driver.go, generateSplitResourceSlices)
//	two at once          kubeletplugin.RollingUpdate; two endpoints of one driver
//	                     overwrite each other's health in the kubelet's cache
//	                     (kubernetes issue 140818)
//	no health service    Unknown for ever; HealthService(false), or a driver that
//	                     answers Unimplemented
//
// The profile "nasty" (the default) turns on what real drivers do to their
// readers: claim-named CDI IDs, own taints, lost updates, amnesia and Unknown
// first. The profile "plain" turns all of that off.
package fakedriver
