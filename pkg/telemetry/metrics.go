package telemetry

import "time"

// What labels hold, where several metrics have them.
var (
	driverLabel  = Label{"driver", "DRA drivers, and extended resource names of device plugins"}
	phaseLabel   = Label{"phase", "the phases of docs/operating.md"}
	verdictLabel = Label{"verdict", "`Outage` where nothing is heard of the kubelet, `Degraded` where it isn't ready"}
	fieldLabel   = Label{"field", "`seen` in the starter, `case` in a worker"}
)

// fast are bounds, in seconds, for what should take milliseconds.
var fast = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// long are bounds, in seconds, for what takes from moments to weeks.
var long = inSeconds(
	time.Second, 10*time.Second, 30*time.Second, time.Minute, 2*time.Minute, 5*time.Minute, 10*time.Minute, 30*time.Minute,
	time.Hour, 6*time.Hour, 24*time.Hour, 3*24*time.Hour, 7*24*time.Hour, 30*24*time.Hour,
)

func inSeconds(bounds ...time.Duration) []float64 {
	var seconds []float64
	for _, b := range bounds {
		seconds = append(seconds, b.Seconds())
	}
	return seconds
}

var (
	both        = []Process{Starter, Worker}
	onlyStarter = []Process{Starter}
	onlyWorker  = []Process{Worker}
)

// What is seen.
var (
	ReportedDevices = Metric{
		Name: "sickbay_reported_devices", Kind: Gauge, Has: onlyStarter,
		Help:   "Devices that live Pods report on, by the worst that one of them reports; a Healthy that isn't believed is Unknown.",
		Labels: []Label{driverLabel, {"health", "`Healthy`, `Unhealthy`, `Unknown`"}},
	}
	ListedDevices = Metric{
		Name: "sickbay_listed_devices", Kind: Gauge, Has: onlyStarter,
		Help:   "Devices in complete pools of ResourceSlices.",
		Labels: []Label{driverLabel},
	}
	UnmappedFaults = Metric{
		Name: "sickbay_unmapped_faults", Kind: Gauge, Has: onlyStarter,
		Help:   "Health entries that aren't Healthy and lead to no single device.",
		Labels: []Label{{"reason", "why not: the WHY of `sickbay devices --unmapped`"}},
	}
	UnmonitoredDevices = Metric{
		Name: "sickbay_unmonitored_devices", Kind: Gauge, Has: onlyStarter,
		Help:   "Devices in use whose driver never reported any health on their node.",
		Labels: []Label{driverLabel},
	}
	UnseenDevices = Metric{
		Name: "sickbay_unseen_devices", Kind: Gauge, Has: onlyStarter,
		Help:   "Devices in complete pools that no live Pod reports on: nobody holds them, and no watch Pod has them (docs/watch.md). No fault of theirs shows.",
		Labels: []Label{driverLabel},
	}
	Pokes = Metric{
		Name: "sickbay_watch_pokes_total", Kind: Counter, Has: onlyStarter,
		Help:   "Kubelets of watch Pods that were asked for a reading of now, every SICKBAY_WATCH_POKE.",
		Labels: []Label{{"outcome", "`asked`; `skipped`, where a look was first or the Pod isn't one to ask; `failed`"}},
	}
	NotedFaults = Metric{
		Name: "sickbay_noted_faults_total", Kind: Counter, Has: onlyStarter,
		Help:   "Unhealthy readings that the catalogue doesn't lay at the device's door.",
		Labels: []Label{{"reason", "reason codes of the catalogue"}, {"action", "`ignore`, `blameWorkload`, `watch`"}},
	}
	WideTaintRules = Metric{
		Name: "sickbay_foreign_wide_taint_rules", Kind: Gauge, Has: onlyStarter,
		Help: "Device taint rules of others that select devices across pools.",
	}
	WatchCurrent = Metric{
		Name: "sickbay_starter_watch_current", Kind: Gauge, Has: onlyStarter,
		Help:   "1 while a resource is listed and watched without error.",
		Labels: []Label{{"resource", "the watched resources, and in the leading starter `leases`, seven at most"}},
	}
	WatchAge = Metric{
		Name: "sickbay_starter_watch_age_seconds", Kind: Gauge, Has: onlyStarter,
		Help:   "Time since the watch of a resource last brought anything, a bookmark (about once a minute) too: how old what is believed may be. Leases are listed every 15 s.",
		Labels: []Label{{"resource", "the watched resources, and in the leading starter `leases`, seven at most"}},
	}
	Blind = Metric{
		Name: "sickbay_blind", Kind: Gauge, Has: onlyStarter,
		Help:   "1 for each thing that the starter can't see now; nothing is concluded from what it doesn't see. Without any there is no such series.",
		Labels: []Label{{"why", "the watched resources, `leases`, and `starting` until all of them have been listed once"}},
	}
	NodesOut = Metric{
		Name: "sickbay_nodes_out", Kind: Gauge, Has: onlyStarter,
		Help:   "Nodes with known devices that are out: what was read on them is held. One that is back is counted until it has settled.",
		Labels: []Label{verdictLabel},
	}
	NodeOutTime = Metric{
		Name: "sickbay_node_out_seconds", Kind: Gauge, Has: onlyStarter,
		Help:   "For how long the first of the nodes that are out has been; 0 if none is.",
		Labels: []Label{verdictLabel},
	}
	StaleDevices = Metric{
		Name: "sickbay_stale_devices", Kind: Gauge, Has: onlyStarter,
		Help:   "Devices that live Pods report on and of which nothing that is said can be believed now.",
		Labels: []Label{driverLabel, {"why", "`NodeSilent`, `NodeNotReady`, `DriverAbsent`, `PluginAbsent`, `WatchBehind`"}},
	}
	EvidenceAge = Metric{
		Name: "sickbay_evidence_age_seconds", Kind: Gauge, Has: onlyStarter,
		Help:   "How old the oldest evidence of a device that live Pods report on may be: the driver's reporting delay, and the time since what is around it ceased to be well.",
		Labels: []Label{driverLabel},
	}
	UnpreparedClaims = Metric{
		Name: "sickbay_unprepared_claims", Kind: Gauge, Has: onlyStarter,
		Help:   "Claims that are allocated but can't be prepared: the driver's slices are gone, and the Pod can't start.",
		Labels: []Label{driverLabel},
	}
	UnpreparedTime = Metric{
		Name: "sickbay_unprepared_claim_seconds", Kind: Gauge, Has: onlyStarter,
		Help:   "For how long the first of these claims has waited; 0 if none does.",
		Labels: []Label{driverLabel},
	}
)

// How it is handed on.
var (
	Leading = Metric{
		Name: "sickbay_starter_leading", Kind: Gauge, Has: onlyStarter,
		Help: "1 while this starter is the one that sends.",
	}
	Signals = Metric{
		Name: "sickbay_starter_signals_total", Kind: Counter, Has: onlyStarter,
		Help:   "Signals accepted by Temporal, by what they carried and whether they may start a case (open) or not (tell).",
		Labels: []Label{{"kind", "`observed`, `inventory`, `mark`"}, {"via", "`open`, `tell`"}},
	}
	DuplicatesDropped = Metric{
		Name: "sickbay_starter_duplicates_dropped_total", Kind: Counter, Has: onlyStarter,
		Help: "Readings dropped because they said what was known already.",
	}
	SendRetries = Metric{
		Name: "sickbay_starter_send_retries_total", Kind: Counter, Has: onlyStarter,
		Help:   "Signals that weren't accepted and are tried again.",
		Labels: []Label{{"why", "`unavailable`, `refused`"}},
	}
	SignalDelay = Metric{
		Name: "sickbay_starter_signal_delay_seconds", Kind: Histogram, Has: onlyStarter, Buckets: fast,
		Help: "Time from the arrival of a Pod's event to the acceptance of the signal about it.",
	}
	QueueDepth = Metric{
		Name: "sickbay_starter_queue_depth", Kind: Gauge, Has: onlyStarter,
		Help: "Devices about which something waits to be sent, for the first time or again; 0 in a starter that doesn't lead.",
	}
)

// What comes of it.
var (
	OpenCases = Metric{
		Name: "sickbay_open_cases", Kind: Gauge, Has: onlyStarter,
		Help:   "Open cases, as the leading starter counts them in Temporal every 30 s; without the search attributes there are none to count by.",
		Labels: []Label{phaseLabel, driverLabel},
	}
	OpenIncidents = Metric{
		Name: "sickbay_open_incidents", Kind: Gauge, Has: onlyStarter,
		Help: "Open incidents, as the leading starter knows them. Those that are Unreached can't be told anything: their devices wait.",
		Labels: []Label{
			{"kind", "`Storm`: Unknown devices; `Crowd`: Unhealthy ones"},
			{"phase", "`Holding`, `Pacing`, `Admitted`, `Noted`, `Unreached`"},
		},
	}
	HeldDevices = Metric{
		Name: "sickbay_held_devices", Kind: Gauge, Has: onlyStarter,
		Help:   "Devices without a case that wait: Unknown ones that gather or are in a storm, Unhealthy ones of a crowd, and Unknown ones whose driver's upgrade is announced.",
		Labels: []Label{{"kind", "`Storm`, `Crowd`, `Upgrade`"}},
	}
	Decisions = Metric{
		Name: "sickbay_decisions_total", Kind: Counter, Has: onlyWorker,
		Help:   "Decisions about cases and incidents, by kind, reason code and whether they raise an alert.",
		Labels: []Label{{"kind", "the kinds of docs/audit.md"}, {"reason", "reason codes of the catalogue; `Other` for one that a mark carries and the catalogue doesn't have"}, {"alert", "`true`, `false`"}},
	}
	Releases = Metric{
		Name: "sickbay_releases_total", Kind: Counter, Has: onlyWorker,
		Help:   "Devices that were proven healthy and given back, by whether their first attempt passed all gates. Those, out of all, are the rate of quarantines in which nothing was ever found.",
		Labels: []Label{{"attempt", "`first`, `later`"}},
	}
	MarkDelay = Metric{
		Name: "sickbay_mark_delay_seconds", Kind: Histogram, Has: onlyWorker, Buckets: fast,
		Help: "Time from the moment at which the starter saw the fault in a Pod's status to the confirmation that the device's mark is in force; once per epoch.",
	}
	PhaseTime = Metric{
		Name: "sickbay_phase_seconds", Kind: Histogram, Has: onlyWorker, Buckets: long,
		Help:   "How long cases were in a phase, observed when they leave it. Time in Unknown is that of Suspect.",
		Labels: []Label{phaseLabel, {"to", "the phase that followed"}},
	}
	KubernetesEvents = Metric{
		Name: "sickbay_kubernetes_events_total", Kind: Counter, Has: onlyWorker,
		Help:   "Calls for Kubernetes Events about decisions, by what became of them; dropped are those that were too many, refused those without the right.",
		Labels: []Label{{"outcome", "`published`, `failed`, `dropped`, `refused`"}},
	}
)

// Calls of the Kubernetes API.
var (
	KubernetesRequests = Metric{
		Name: "sickbay_kubernetes_requests_total", Kind: Counter, Has: both,
		Help: "Requests to the Kubernetes API.",
		Labels: []Label{
			{"verb", "the API's verbs: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`"},
			{"resource", "resources as rights are granted on them; `-` for paths that are none"},
			{"code", "HTTP status codes; `error` where there was no answer"},
		},
	}
	KubernetesRequestTime = Metric{
		Name: "sickbay_kubernetes_request_seconds", Kind: Histogram, Has: both, Buckets: fast,
		Help:   "Time to the answer of the Kubernetes API; for a watch, to its beginning.",
		Labels: []Label{{"verb", "as above"}},
	}
	Evictions = Metric{
		Name: "sickbay_evictions_total", Kind: Counter, Has: both,
		Help: "Requests that evict or delete a Pod. This version makes none: anything but 0 is a fault.",
	}
)

// The directory.
var (
	DirectoryWrites = Metric{
		Name: "sickbay_directory_writes_total", Kind: Counter, Has: both,
		Help:   "Writes into the directory that followed a change, by what became of them.",
		Labels: []Label{fieldLabel, {"outcome", "`applied`, `conflict`, `fenced`, `unknown`"}},
	}
	DirectoryDifferences = Metric{
		Name: "sickbay_directory_differences_total", Kind: Counter, Has: both,
		Help:   "Entries that a comparison with cluster and cases found wrong and repaired, by what was wrong with them.",
		Labels: []Label{fieldLabel, {"kind", "`missing`, `different`, `nobodys`"}},
	}
	DirectoryLostShards = Metric{
		Name: "sickbay_directory_lost_shards_total", Kind: Counter, Has: both,
		Help:   "Shards that were found empty, new, or restored from older data, and rebuilt.",
		Labels: []Label{fieldLabel},
	}
	DirectoryErrors = Metric{
		Name: "sickbay_directory_errors_total", Kind: Counter, Has: both,
		Help:   "Rounds of writing that failed, because Redis was away or something wasn't known.",
		Labels: []Label{fieldLabel},
	}
	DirectoryOverflows = Metric{
		Name: "sickbay_directory_overflows_total", Kind: Counter, Has: both,
		Help:   "Times that more devices waited than are remembered, so that everything is compared instead.",
		Labels: []Label{fieldLabel},
	}
	DirectoryWaiting = Metric{
		Name: "sickbay_directory_waiting", Kind: Gauge, Has: both,
		Help:   "Devices whose entries are due to be written and aren't yet.",
		Labels: []Label{fieldLabel},
	}
	DirectoryLag = Metric{
		Name: "sickbay_directory_lag_seconds", Kind: Gauge, Has: both,
		Help:   "For how long the directory has lacked something: the age of the oldest change that waits to be written; 0 if none does.",
		Labels: []Label{fieldLabel},
	}
	DirectoryCurrent = Metric{
		Name: "sickbay_directory_current", Kind: Gauge, Has: both,
		Help:   "1 while the directory is written without error.",
		Labels: []Label{fieldLabel},
	}
	DirectoryDecisions = Metric{
		Name: "sickbay_directory_decisions_total", Kind: Counter, Has: onlyWorker,
		Help:   "Decisions for the directory's transitions, by what became of them; those that were dropped waited for a Redis that was away.",
		Labels: []Label{{"outcome", "`applied`, `duplicate`, `conflict`, `fenced`, `lost`, `dropped`"}},
	}
)

// The process.
var (
	BuildInfo = Metric{
		Name: "sickbay_build_info", Kind: Gauge, Has: both,
		Help:   "1; the labels say what runs.",
		Labels: []Label{{"version", "the release"}, {"commit", "the commit, where it is known"}},
	}
	PolicyState = Metric{
		Name: "sickbay_policy_state", Kind: Gauge, Has: both,
		Help:   "1; the label says what is known of the policy's ConfigMap. refused, deleted and unreadable want somebody to look: what it says isn't in force.",
		Labels: []Label{{"state", "`waiting`, `none`, `read`, `refused`, `deleted`, `unreadable`"}},
	}
	Prerequisites = Metric{
		Name: "sickbay_prerequisites", Kind: Gauge, Has: both,
		Help:   "1 for what the process found last of each thing that it needs; `sickbay doctor` and /readyz say more.",
		Labels: []Label{{"check", "what was looked at, a dozen"}, {"state", "`ok`, `degraded`, `unknown`, `missing`"}},
	}
)

// Section is a group of metrics under a heading.
type Section struct {
	Title   string
	Metrics []Metric
}

// Sections returns all metrics, in the order of the documentation.
func Sections() []Section {
	return []Section{
		{"What is seen", []Metric{ReportedDevices, ListedDevices, UnseenDevices, UnmappedFaults, UnmonitoredDevices, Pokes, NotedFaults, WideTaintRules}},
		{"How far it can be believed", []Metric{Blind, WatchCurrent, WatchAge, NodesOut, NodeOutTime, StaleDevices, EvidenceAge, UnpreparedClaims, UnpreparedTime}},
		{"How it is handed on", []Metric{Leading, Signals, DuplicatesDropped, SendRetries, SignalDelay, QueueDepth}},
		{"What comes of it", []Metric{OpenCases, OpenIncidents, HeldDevices, Decisions, Releases, MarkDelay, PhaseTime, KubernetesEvents}},
		{"Calls of the Kubernetes API", []Metric{KubernetesRequests, KubernetesRequestTime, Evictions}},
		{"The directory", []Metric{
			DirectoryWrites, DirectoryDifferences, DirectoryLostShards, DirectoryErrors, DirectoryOverflows, DirectoryWaiting,
			DirectoryLag, DirectoryCurrent, DirectoryDecisions,
		}},
		{"The process", []Metric{BuildInfo, Prerequisites, PolicyState}},
	}
}
