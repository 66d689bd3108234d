package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kubernetes says how to reach the cluster.
type Kubernetes struct {
	Kubeconfig  string  `split_words:"true" form:"file" desc:"Kubeconfig file. Empty: as kubectl does, KUBECONFIG, then ~/.kube/config, then the Pod's own ServiceAccount."`
	KubeContext string  `split_words:"true" desc:"Context of the kubeconfig. Empty: its current one."`
	KubeQPS     float64 `split_words:"true" default:"200" min:"1" max:"10000" desc:"Calls per second that this process makes to the API server at most, over time."`
	KubeBurst   int     `split_words:"true" default:"400" min:"1" max:"20000" desc:"Calls that it may make at once before SICKBAY_KUBE_QPS holds it back."`
}

// Temporal says how to reach the Temporal service.
type Temporal struct {
	Address    string `split_words:"true" default:"127.0.0.1:7233" form:"dial" desc:"Temporal frontend."`
	Namespace  string `split_words:"true" default:"sickbay" form:"given" desc:"Temporal namespace. sickbay setup temporal makes it; see docs/temporal.md."`
	TaskQueue  string `split_words:"true" default:"sickbay" form:"given" desc:"Task queue that starter and workers share."`
	APIKeyFile string `split_words:"true" form:"file" desc:"File with an API key, sent with every call; read again whenever it is used. Implies TLS."`
	TLS        TLS
}

// TLS says how the connection to Temporal is secured. Any of its fields turns it on.
type TLS struct {
	Enabled    bool   `split_words:"true" default:"false" desc:"Use TLS even if none of the other TLS variables and no API key is set."`
	CAFile     string `split_words:"true" form:"file" desc:"PEM file with the authorities that Temporal's certificate may come from. Empty: the system's."`
	CertFile   string `split_words:"true" form:"file" desc:"PEM file with this process's certificate; read again for each connection."`
	KeyFile    string `split_words:"true" form:"file" desc:"PEM file with the certificate's private key; read again for each connection."`
	ServerName string `split_words:"true" desc:"Name to expect in Temporal's certificate. Empty: the host of the address."`
}

// Wanted tells whether the connection uses TLS.
func (t Temporal) Wanted() bool {
	return t.TLS.Enabled || t.APIKeyFile != "" || t.TLS.CAFile != "" || t.TLS.CertFile != "" || t.TLS.ServerName != ""
}

func (t Temporal) check() []error {
	if (t.TLS.CertFile == "") != (t.TLS.KeyFile == "") {
		return []error{wrong(fmt.Errorf("SICKBAY_TEMPORAL_TLS_CERT_FILE=%q and SICKBAY_TEMPORAL_TLS_KEY_FILE=%q: want both or neither", t.TLS.CertFile, t.TLS.KeyFile))}
	}
	return nil
}

// Log says what is logged and how.
type Log struct {
	Level  string `split_words:"true" default:"info" oneof:"debug info warn error" desc:"Least level that is logged."`
	Format string `split_words:"true" default:"json" oneof:"json text" desc:"Form of a log line."`
}

// HTTP says where a service answers /metrics, /healthz and /readyz.
type HTTP struct {
	Address string `split_words:"true" default:":8080" form:"listen" desc:"Address for /metrics, /healthz and /readyz."`
}

// Telemetry says where traces and metrics go. It has no more variables than that:
// what OpenTelemetry calls a header, a certificate, a sampler or a resource is said
// by the variables that OpenTelemetry defines.
type Telemetry struct {
	OTLPEndpoint string `envconfig:"OTLP_ENDPOINT" form:"url" desc:"OpenTelemetry collector for traces and metrics, OTLP over gRPC: http://host:4317, or https:// with TLS. Empty: OTEL_EXPORTER_OTLP_ENDPOINT, and where that is empty too nothing leaves the process; /metrics is there in any case. OTEL_EXPORTER_OTLP_HEADERS, …_CERTIFICATE, OTEL_TRACES_SAMPLER, OTEL_METRIC_EXPORT_INTERVAL and OTEL_RESOURCE_ATTRIBUTES mean what OpenTelemetry says."`
}

// Reporting says how old the health in a Pod's status may be. It is a policy of the
// cluster's drivers: all of Sickbay goes by the same one.
type Reporting struct {
	ReportingDelay DriverDurations `split_words:"true" default:"2m" min:"1s" max:"1h" desc:"How long after the fact the health in a Pod's status may still be the old one, for all drivers and for single ones: the driver's health timeout (30 s unless it asks for another) and the kubelet's pause between two looks at a Pod (up to 90 s). How to measure it: docs/operating.md."`
}

// Watch says where watch Pods are: docs/watch.md.
type Watch struct {
	WatchNamespace string `split_words:"true" form:"name" desc:"Namespace of watch Pods, by which the health of devices that nobody holds is seen and kubelets are asked for readings of now. Empty: there are none, and no Pod is changed. deploy/components/watch sets it, with the right that it takes."`
}

// Service is what starter and worker share.
type Service struct {
	Kubernetes
	Watch
	Temporal Temporal
	Log      Log
	HTTP     HTTP
	Telemetry
	Reasons Reasons
	Redis   Redis
	Reporting
}

func (s Service) check() []error {
	return slices.Concat(s.Temporal.check(), s.Reasons.check(), s.Redis.check())
}

// Client is the configuration of the commands that people run.
type Client struct {
	Kubernetes
	ProbePlace
	Temporal Temporal
	Redis    Redis
	Reporting
	LeaderElection LeaderElection `split_words:"true"`
	TemporalUI     string         `split_words:"true" form:"url" desc:"Address of Temporal's web UI, for links to the workflows of cases. Empty: none are shown."`
}

func (c *Client) check() []error { return append(c.Temporal.check(), c.Redis.check()...) }

// Doctor is the configuration of `sickbay doctor`: what the services read that
// decides what they need.
type Doctor struct {
	Client
	Watch
	PolicyPlace
	Mode string `split_words:"true" default:"observe" oneof:"observe enforce" desc:"observe changes nothing in the cluster and shows what would be done; enforce makes marks."`
}

// WatchPods is the configuration of `sickbay watch manifests` and `sickbay watch check`.
type WatchPods struct {
	Kubernetes
	Watch
}

func (*WatchPods) check() []error { return nil }

// Setup is the configuration of `sickbay setup temporal`.
type Setup struct {
	Temporal Temporal
}

func (s *Setup) check() []error { return s.Temporal.check() }

// DriverDurations is a duration for each driver (or, on the device-plugin path, each
// extended resource); under the empty name stands the one for all that aren't named.
type DriverDurations map[string]time.Duration

func (DriverDurations) allowed() string {
	return "a duration such as 2m, and others for single drivers: 2m,gpu.example.com=3m,nic.example.com=90s; each"
}

// Of is the duration for a driver.
func (d DriverDurations) Of(driver string) time.Duration {
	if own, named := d[driver]; named {
		return own
	}
	return d[""]
}

// Decode reads the list. envconfig calls it.
func (d *DriverDurations) Decode(text string) error {
	durations := DriverDurations{}
	for entry := range strings.SplitSeq(text, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		driver, value, named := strings.Cut(entry, "=")
		if !named {
			driver, value = "", entry
		}
		if driver = strings.TrimSpace(driver); named && driver == "" {
			return fmt.Errorf("%q isn't driver=duration", entry)
		}
		held, err := time.ParseDuration(strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("%q isn't a duration, or driver=duration", entry)
		}
		if _, twice := durations[driver]; twice {
			if driver == "" {
				return errors.New("the duration for all drivers stands twice")
			}
			return fmt.Errorf("%s stands twice", driver)
		}
		durations[driver] = held
	}
	if _, all := durations[""]; !all {
		return errors.New("the duration for all drivers is missing")
	}
	*d = durations
	return nil
}
