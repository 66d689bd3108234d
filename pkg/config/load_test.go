package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/incident"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// lines are the messages of a joined error.
func lines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

func TestWithoutVariablesTheDefaultsHold(t *testing.T) {
	var worker Worker
	if err := Load(&worker); err != nil {
		t.Fatal(err)
	}
	if got, want := worker.Quarantine(), quarantine.DefaultPolicy(); got != want {
		t.Errorf("the policy without variables is\n%+v, want that of pkg/quarantine,\n%+v", got, want)
	}
	if worker.StopTimeout != 25*time.Second {
		t.Errorf("stop timeout %s, want 25s", worker.StopTimeout)
	}
	if worker.Temporal.Wanted() {
		t.Error("TLS is wanted although no variable asks for it")
	}
}

// Every field of the policy has a variable: one that is set has to come out in
// the policy that decisions are made by.
func TestEveryFieldOfThePolicyCanBeSet(t *testing.T) {
	for _, v := range variables(Prefix, reflect.ValueOf(Policy{})) {
		value := "17m"
		switch v.Name {
		case "SICKBAY_MODE":
			value = "enforce"
		case "SICKBAY_FLAP_LIMIT", "SICKBAY_ATTEMPTS":
			value = "17"
		}
		t.Setenv(v.Name, value)
	}
	var worker Worker
	if err := Load(&worker); err != nil {
		t.Fatal(err)
	}
	policy := reflect.ValueOf(worker.Quarantine())
	for i := range policy.NumField() {
		switch policy.Type().Field(i).Name {
		case "Rules":
			continue // it belongs to the code and not to the operator
		case "Recover":
			continue // it follows from what there is to try devices with
		}
		switch held := policy.Field(i).Interface().(type) {
		case time.Duration:
			if held != 17*time.Minute {
				t.Errorf("policy field %s is %s, want 17m: no variable sets it", policy.Type().Field(i).Name, held)
			}
		case quarantine.Mode:
			if held != quarantine.ModeEnforce {
				t.Errorf("mode is %s, want enforce", held)
			}
		case int:
			if held != 17 {
				t.Errorf("policy field %s is %d, want 17: no variable sets it", policy.Type().Field(i).Name, held)
			}
		default:
			t.Errorf("policy field %s: no variable sets it", policy.Type().Field(i).Name)
		}
	}
}

func TestAWrongValueIsRefusedWithItsNameTheValueAndWhatIsAllowed(t *testing.T) {
	directory := t.TempDir()
	for name, tc := range map[string]struct {
		variable, value string
		want            string
	}{
		"a duration without a unit": {
			"SICKBAY_GRACE", "300",
			`SICKBAY_GRACE="300": want a duration such as 500ms, 30s, 5m or 1h30m, at least 1s (time: missing unit in duration "300")`,
		},
		"a duration below its bound": {
			"SICKBAY_LEASE", "0s",
			`SICKBAY_LEASE="0s": want a duration such as 500ms, 30s, 5m or 1h30m, at least 1s (less than 1s)`,
		},
		"a duration above its bound": {
			"SICKBAY_STOP_TIMEOUT", "1h",
			`SICKBAY_STOP_TIMEOUT="1h": want a duration such as 500ms, 30s, 5m or 1h30m, from 1s to 10m (more than 10m0s)`,
		},
		"a mode that there isn't": {
			"SICKBAY_MODE", "Enforce",
			`SICKBAY_MODE="Enforce": want observe or enforce (no such value)`,
		},
		"an empty mode": {
			"SICKBAY_MODE", "",
			`SICKBAY_MODE="": want observe or enforce (no such value)`,
		},
		"a number that is none": {
			"SICKBAY_KUBE_BURST", "many",
			`SICKBAY_KUBE_BURST="many": want a whole number, from 1 to 20000 (strconv.ParseInt: parsing "many": invalid syntax)`,
		},
		"a rate that isn't a number": {
			"SICKBAY_KUBE_QPS", "NaN",
			`SICKBAY_KUBE_QPS="NaN": want a number, from 1 to 10000 (not a number)`,
		},
		"an image with a space": {
			"SICKBAY_PROBE_IMAGE", "sickbay: dev",
			`SICKBAY_PROBE_IMAGE="sickbay: dev": want an image such as registry.example.com/sickbay:1.0, without spaces (no name of an image)`,
		},
		"a namespace that can't be one": {
			"SICKBAY_PROBE_NAMESPACE", "Sickbay_Probe",
			`SICKBAY_PROBE_NAMESPACE="Sickbay_Probe": want a Kubernetes name: lower-case letters, digits and dashes, at most 63 (not a DNS label)`,
		},
		"an address without a port": {
			"SICKBAY_TEMPORAL_ADDRESS", "temporal",
			`SICKBAY_TEMPORAL_ADDRESS="temporal": want an address to connect to, host:port (address temporal: missing port in address)`,
		},
		"an address with a port that there isn't": {
			"SICKBAY_HTTP_ADDRESS", ":99999",
			`SICKBAY_HTTP_ADDRESS=":99999": want an address to listen on, host:port or :port; port 0 takes a free one (port "99999" isn't a number from 0 to 65535)`,
		},
		"a file that isn't there": {
			"SICKBAY_TEMPORAL_API_KEY_FILE", "/nowhere/key",
			`SICKBAY_TEMPORAL_API_KEY_FILE="/nowhere/key": want the path of a file that can be read (open /nowhere/key: no such file or directory)`,
		},
		"a directory in place of a file": {
			"SICKBAY_KUBECONFIG", directory,
			`SICKBAY_KUBECONFIG="` + directory + `": want the path of a file that can be read (` + directory + ` is a directory)`,
		},
		"no namespace": {
			"SICKBAY_TEMPORAL_NAMESPACE", "",
			`SICKBAY_TEMPORAL_NAMESPACE="": want a text that isn't empty (it is empty)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(tc.variable, tc.value)
			err := Load(&Worker{})
			if !errors.Is(err, ErrConfig) {
				t.Fatalf("error %v, want one that says that the configuration is wrong", err)
			}
			if got := lines(err); len(got) != 1 || got[0] != tc.want {
				t.Errorf("refused with\n%s\nwant\n%s", strings.Join(got, "\n"), tc.want)
			}
		})
	}
}

func TestAllThatIsWrongIsReportedAtOnce(t *testing.T) {
	t.Setenv("SICKBAY_GRACE", "soon")
	t.Setenv("SICKBAY_MODE", "on")
	t.Setenv("SICKBAY_RECHECK_FIRST", "10m")
	t.Setenv("SICKBAY_TEMPORAL_TLS_SERVER_NAME", "temporal.example.com")
	t.Setenv("SICKBAY_STABILTY", "1m")
	certificate := filepath.Join(t.TempDir(), "tls.crt")
	if err := os.WriteFile(certificate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SICKBAY_TEMPORAL_TLS_CERT_FILE", certificate)
	err := Load(&Worker{})
	got := lines(err)
	for _, want := range []string{
		`SICKBAY_GRACE="soon": want a duration`,
		`SICKBAY_MODE="on": want observe or enforce`,
		`SICKBAY_RECHECK_MAX=2m0s: want at least SICKBAY_RECHECK_FIRST, which is 10m0s`,
		`SICKBAY_TEMPORAL_TLS_KEY_FILE="": want both or neither`,
		`SICKBAY_STABILTY: there is no such variable; did you mean SICKBAY_STABILITY?`,
	} {
		if !strings.Contains(strings.Join(got, "\n"), want) {
			t.Errorf("nothing says %q in\n%s", want, strings.Join(got, "\n"))
		}
	}
	if len(got) != 5 {
		t.Errorf("%d lines, want 5:\n%s", len(got), strings.Join(got, "\n"))
	}
	if !errors.Is(err, ErrConfig) {
		t.Error("the error doesn't say that the configuration is wrong")
	}
}

func TestAVariableThatMeansNothingIsRefused(t *testing.T) {
	for name, tc := range map[string]struct{ variable, want string }{
		"a letter missing":                          {"SICKBAY_LOG_LEVL", "SICKBAY_LOG_LEVL: there is no such variable; did you mean SICKBAY_LOG_LEVEL?"},
		"nothing near":                              {"SICKBAY_XYZZY_QUX", "SICKBAY_XYZZY_QUX: there is no such variable; unset it (docs/configuration.md lists all)"},
		"one that only another command reads":       {"SICKBAY_MARK_CHECK", ""},
		"a Service called sickbay":                  {"SICKBAY_SERVICE_HOST", ""},
		"a Service called sickbay, its port":        {"SICKBAY_PORT", ""},
		"a Service called sickbay-starter":          {"SICKBAY_STARTER_PORT_8080_TCP_ADDR", ""},
		"a named port of Service sickbay-starter":   {"SICKBAY_STARTER_SERVICE_PORT_HTTP_METRICS", ""},
		"the development stack's":                   {"SICKBAY_STACK_CACHE", ""},
		"another program's":                         {"SICKBAYS_MODE", ""},
		"a name of ours without the prefix is none": {"MODE", ""},
	} {
		t.Run(name, func(t *testing.T) {
			value := "1"
			if tc.variable == "SICKBAY_MARK_CHECK" {
				value = "1m"
			}
			t.Setenv(tc.variable, value)
			var worker Worker
			err := Load(&worker)
			if got := strings.Join(lines(err), "\n"); got != tc.want {
				t.Errorf("says %q, want %q", got, tc.want)
			}
			if worker.Mode != "observe" {
				t.Errorf("mode %q, want observe", worker.Mode)
			}
		})
	}
}

func TestUnknownPolicies(t *testing.T) {
	for name, tc := range map[string]struct {
		value string
		want  UnknownPolicies
		err   string
	}{
		"one per driver":     {"gpu.example.com=ignore, nic.example.com=fault", UnknownPolicies{"gpu.example.com": "ignore", "nic.example.com": "fault"}, ""},
		"a resource's name":  {"example.com/gpu=fault", UnknownPolicies{"example.com/gpu": "fault"}, ""},
		"none":               {"", UnknownPolicies{}, ""},
		"a word that isn't":  {"gpu.example.com=never", nil, `"gpu.example.com=never" isn't driver=policy`},
		"no driver":          {"=ignore", nil, `"=ignore" isn't driver=policy`},
		"a driver twice":     {"a=ignore,a=fault", nil, "a stands twice"},
		"a driver by itself": {"gpu.example.com", nil, `"gpu.example.com" isn't driver=policy`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SICKBAY_UNKNOWN_POLICY", tc.value)
			var starter Starter
			err := Load(&starter)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want one that says %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(starter.UnknownPolicy, tc.want) {
				t.Errorf("read %v, want %v", starter.UnknownPolicy, tc.want)
			}
		})
	}
}

func TestDurationsForAllDriversAndForSingleOnes(t *testing.T) {
	for name, tc := range map[string]struct {
		value string
		want  DriverDurations
		err   string
	}{
		"one for all":        {"90s", DriverDurations{"": 90 * time.Second}, ""},
		"others for two":     {"2m, gpu.example.com=3m, example.com/nic=90s", DriverDurations{"": 2 * time.Minute, "gpu.example.com": 3 * time.Minute, "example.com/nic": 90 * time.Second}, ""},
		"none for the rest":  {"gpu.example.com=3m", nil, "the duration for all drivers is missing"},
		"nothing":            {"", nil, "the duration for all drivers is missing"},
		"no duration":        {"2m,gpu.example.com=long", nil, `"gpu.example.com=long" isn't a duration, or driver=duration`},
		"no driver":          {"2m,=3m", nil, `"=3m" isn't driver=duration`},
		"a driver twice":     {"2m,a=3m,a=4m", nil, "a stands twice"},
		"two for all":        {"2m,3m", nil, "the duration for all drivers stands twice"},
		"one that is short":  {"2m,gpu.example.com=10ms", nil, "want a duration such as 2m, and others for single drivers: 2m,gpu.example.com=3m,nic.example.com=90s; each from 1s to 1h (gpu.example.com: 10ms is less than 1s)"},
		"all that are wrong": {"2h,gpu.example.com=3h", nil, "gpu.example.com: 3h0m0s is more than 1h"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SICKBAY_REPORTING_DELAY", tc.value)
			var starter Starter
			err := Load(&starter)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want one that says %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(starter.ReportingDelay, tc.want) {
				t.Errorf("read %v, want %v", starter.ReportingDelay, tc.want)
			}
			if got := starter.ReportingDelay.Of("fpga.example.com"); got != tc.want[""] {
				t.Errorf("%s for a driver that isn't named, want %s", got, tc.want[""])
			}
			for driver, want := range tc.want {
				if got := starter.ReportingDelay.Of(driver); got != want {
					t.Errorf("%s for %q, want %s", got, driver, want)
				}
			}
		})
	}
}

// A variable that is described wrongly is a mistake of the struct, and would
// show only to whoever asks for help.
func TestEveryVariableIsDescribed(t *testing.T) {
	for _, spec := range commands() {
		seen := map[string]bool{}
		for _, v := range Variables(spec) {
			if v.Description == "" || !strings.HasSuffix(v.Description, ".") {
				t.Errorf("%s: description %q, want sentences", v.Name, v.Description)
			}
			if seen[v.Name] {
				t.Errorf("%s is read twice by one command", v.Name)
			}
			seen[v.Name] = true
			if serviceLink.MatchString(v.Name) {
				t.Errorf("%s looks like a variable that the kubelet sets for a Service", v.Name)
			}
			if form := v.field.Tag.Get("form"); form != "" && forms()[form].check == nil {
				t.Errorf("%s: there is no form %q", v.Name, form)
			}
		}
	}
}

func TestARefusedAddressDoesNotShowItsPassword(t *testing.T) {
	t.Setenv("SICKBAY_OTLP_ENDPOINT", "ftp://collector:s3cret@otel.example.com")
	var set Worker
	err := Load(&set)
	if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "SICKBAY_OTLP_ENDPOINT") || !strings.Contains(err.Error(), "otel.example.com") {
		t.Errorf("refused with %v; want the variable and the host, and no password", err)
	}
}

// Whatever is wrong with an address or with a file, what is said of it holds no
// password and no key.
func TestARefusedValueShowsNoSecret(t *testing.T) {
	const secret = "s3cr3t-Tr0ub4dor"
	for name, value := range map[string]string{
		"SICKBAY_REDIS_ADDRESSES":              "redis://u:" + secret + "@h:6379",
		"SICKBAY_TEMPORAL_ADDRESS":             "https://u:" + secret + "@h:1",
		"SICKBAY_OTLP_ENDPOINT":                "https//u:" + secret + "@h",
		"SICKBAY_TEMPORAL_API_KEY_FILE":        secret,
		"SICKBAY_REDIS_PASSWORD_FILE":          secret + "\n",
		"SICKBAY_REDIS_TLS_KEY_FILE":           "-----BEGIN PRIVATE KEY-----\n" + secret + "/" + secret,
		"SICKBAY_TEMPORAL_TLS_CERT_FILE":       secret,
		"SICKBAY_TEMPORAL_TLS_CA_FILE":         secret,
		"SICKBAY_REASONS_FILE":                 secret,
		"SICKBAY_TEMPORAL_TLS_KEY_FILE":        secret,
		"SICKBAY_REDIS_SENTINEL_PASSWORD_FILE": secret,
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			err := Load(&Starter{})
			if err == nil {
				t.Fatalf("%s=%q is taken", name, value)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("it says %q", err)
			}
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%q doesn't name the variable", err)
			}
		})
	}
	for _, addresses := range []string{"u:" + secret + "@h:6379", "rediss://:" + secret + "@h:1,rediss://:" + secret + "@i:1"} {
		t.Setenv("SICKBAY_REDIS_ADDRESSES", addresses)
		if err := Load(&Starter{}); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", addresses, err)
		}
	}
}

func TestWithoutVariablesIncidentsAreThoseOfTheCode(t *testing.T) {
	var starter Starter
	if err := Load(&starter); err != nil {
		t.Fatal(err)
	}
	if got, want := starter.Thresholds(), incident.DefaultThresholds(); got != want {
		t.Errorf("thresholds %+v, want %+v", got, want)
	}
	var worker Worker
	if err := Load(&worker); err != nil {
		t.Fatal(err)
	}
	if got, want := worker.Storms(), incident.DefaultPolicy(); got != want {
		t.Errorf("policy %+v, want %+v", got, want)
	}
}
