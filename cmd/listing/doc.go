// Package listing puts together what is known of devices: what the cluster lists,
// what Pods report, which marks are there and what the open cases say. It is what
// `sickbay devices` lists, what `sickbay device` tells of one of them, and what
// `sickbay pod` tells of those of one Pod.
//
// It owns the reading (Read, Watch, CaseReader, ReadTimeline, ReadPods) and the
// joins (Join, Tell, TellPod), which are pure functions of what was read: another
// source is another reader, and no other join. It owns the sentences too that sum
// a device up; what a case does next is said in the words of package
// workflows/device. Printing is package show's. It only ever reads, and a source
// that is away becomes a problem in the answer, never a guess about a device.
package listing
