package cmd

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/config"
)

// ran is what a command line did.
type ran struct {
	code     int
	out, err string
}

func run(t *testing.T, args ...string) ran {
	t.Helper()
	var out, failed strings.Builder
	code := Run(t.Context(), args, Streams{Out: &out, Err: &failed})
	return ran{code: code, out: out.String(), err: failed.String()}
}

func TestWrongUsageEndsWithCode2AndSaysWhatToDo(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"a command that there isn't": {[]string{"frobnicate"}, `sickbay: there is no command "frobnicate"; see sickbay --help`},
		"a command misspelt":         {[]string{"wroker"}, `sickbay: there is no command "wroker"; did you mean worker?`},
		"an argument too many":       {[]string{"worker", "now"}, `sickbay: sickbay worker takes no arguments, not ["now"]; see sickbay worker --help`},
		"a flag that there isn't":    {[]string{"devices", "--fault"}, "sickbay: unknown flag: --fault; see sickbay devices --help"},
		"a format that there isn't":  {[]string{"devices", "-o", "xml"}, `sickbay: output "xml": want table, wide, json, yaml, name`},
		"a watch that can't be":      {[]string{"devices", "--watch", "-o", "json"}, "sickbay: --watch shows table or wide, not json"},
		"a colour that there isn't":  {[]string{"devices", "--color", "red"}, `sickbay: --color "red": want auto, always or never`},
		"two answers at once":        {[]string{"devices", "--counts", "--unmapped"}, "sickbay: --counts and --unmapped are two answers; ask for one of them"},
		"a watch of counts":          {[]string{"devices", "--watch", "--counts"}, "sickbay: --watch shows devices, with their counts; leave --counts and --unmapped out"},
		"names of counts":            {[]string{"devices", "--counts", "-o", "name"}, "sickbay: --counts has no names; want -o table, json or yaml"},
		"unmapped faults of a phase": {[]string{"devices", "--unmapped", "--phase", "Gone"}, "sickbay: --unmapped can't be narrowed by phase or class: an entry that leads to no device has neither"},
		"a phase that there isn't":   {[]string{"devices", "--phase", "Suspekt"}, `sickbay: --phase "Suspekt": there is no such phase; did you mean Suspect?`},
		"an order that there isn't":  {[]string{"devices", "--sort-by", "nod"}, `sickbay: --sort-by "nod": did you mean node?`},
		"no device":                  {[]string{"device"}, "sickbay: which device? Want driver/pool/device; `sickbay devices --faulty -o name` lists those that something is wrong with"},
		"two devices":                {[]string{"device", "a/b/c", "a/b/d"}, "sickbay: sickbay device tells of one device at a time, not of 2; `sickbay devices DEVICE...` lists several"},
		"a timeline into the future": {[]string{"device", "a/b/c", "--timeline", "-1"}, "sickbay: --timeline -1: want a number of decisions, or 0 for all"},
		"no Pod":                     {[]string{"pod"}, "sickbay: want one Pod, as NAMESPACE/NAME, not []; see sickbay pod --help"},
		"no incident":                {[]string{"incident"}, "sickbay: which incident? `sickbay incidents` lists those that are open"},
		"a scope that can't be":      {[]string{"incident", "rack/7"}, "sickbay: \"rack/7\" isn't the scope of an incident; want cluster, driver/NAME, node/NAME, crowd/driver/NAME[@VERSION] or crowd/node/NAME; `sickbay incidents -o name` lists those that are open"},
		"a scope of two nodes":       {[]string{"incident", "close", "node/a/b", "--reason", "x"}, "sickbay: \"node/a/b\" isn't the scope of an incident; want cluster, driver/NAME, node/NAME, crowd/driver/NAME[@VERSION] or crowd/node/NAME; `sickbay incidents -o name` lists those that are open"},
		"a wait of no time":          {[]string{"incident", "wait", "cluster", "--reason", "x", "--for", "1ns"}, "sickbay: --for 1ns; want 1m to 24h; what lasts longer is said again"},
		"a wait into the past":       {[]string{"incident", "wait", "cluster", "--reason", "x", "--for", "-4h"}, "sickbay: --for -4h0m0s; want 1m to 24h; what lasts longer is said again"},
		"a wait of days":             {[]string{"incident", "wait", "cluster", "--reason", "x", "--for", "48h"}, "sickbay: --for 48h0m0s; want 1m to 24h; what lasts longer is said again"},
		"a wait that is none":        {[]string{"incident", "wait", "cluster", "--reason", "x", "--for", "soon"}, `sickbay: --for "soon": want a duration like 90m or 4h, 1m to 24h`},
		"a word without a reason":    {[]string{"incident", "admit", "cluster"}, "sickbay: admit without a reason: say why with --reason"},
		"a node by half its path":    {[]string{"probe", "--device-node", "nvidia0"}, `sickbay: --device-node "nvidia0": want a whole path, such as /dev/nvidia0`},
		"a variable with its value":  {[]string{"probe", "--env", "A=b"}, `sickbay: --env "A=b": want the name of a variable, such as NVIDIA_VISIBLE_DEVICES; what it says is for --expect`},
		"a mount by half its path":   {[]string{"probe", "--mount", "lib"}, `sickbay: --mount "lib": want a whole path, such as /usr/lib/libvendor.so`},
		"half of what to expect":     {[]string{"probe", "--expect", "uuid"}, `sickbay: --expect "uuid": want NAME=VALUE, such as uuid=GPU-0a671a0b-deed-4727-8000-1a0bdeedb727`},
		"a check by no command":      {[]string{"probe", "--run", " "}, `sickbay: --run " ": want a command, such as 'nvidia-smi -L'`},
		"checks without a pause":     {[]string{"probe", "--for", "1m", "--every", "0s"}, "sickbay: --every 0s: want more than nothing"},
		"holding what":               {[]string{"probe", "hold", "it"}, `sickbay: sickbay probe hold takes no arguments, not ["it"]; see sickbay probe hold --help`},
		"a version in no format":     {[]string{"version", "-o", "yaml"}, `sickbay: -o "yaml": want json, or nothing for text`},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, tc.args...)
			if got.code != ExitUsage || strings.TrimSpace(got.err) != tc.want || got.out != "" {
				t.Errorf("exit code %d, standard error %q, standard output %q; want %d, %q and nothing", got.code, got.err, got.out, ExitUsage, tc.want)
			}
		})
	}
}

func TestAWrongConfigurationEndsWithCode2AndAllThatIsWrong(t *testing.T) {
	t.Setenv("SICKBAY_MODE", "on")
	t.Setenv("SICKBAY_GRACEE", "1m")
	got := run(t, "worker")
	for _, want := range []string{`sickbay: SICKBAY_MODE="on": want observe or enforce`, "sickbay: SICKBAY_GRACEE: there is no such variable; did you mean SICKBAY_GRACE?"} {
		if !strings.Contains(got.err, want) {
			t.Errorf("nothing says %q in\n%s", want, got.err)
		}
	}
	if got.code != ExitUsage {
		t.Errorf("exit code %d, want %d", got.code, ExitUsage)
	}
}

func TestWithoutAWayToAClusterTheCommandSaysHowToGiveOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte("apiVersion: v1\nkind: Config\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SICKBAY_KUBECONFIG", path)
	got := run(t, "devices")
	if got.code != ExitUsage || !strings.Contains(got.err, "set SICKBAY_KUBECONFIG or KUBECONFIG") {
		t.Errorf("exit code %d and %q, want %d and what to set", got.code, got.err, ExitUsage)
	}
}

// A KUBECONFIG that names nothing is refused, and not passed over: the next place to
// look may be another cluster.
func TestAKubeconfigThatIsNotThereIsNamed(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "nowhere")
	t.Setenv("KUBECONFIG", missing)
	got := run(t, "devices")
	if got.code != ExitUsage || !strings.Contains(got.err, missing) || !strings.Contains(got.err, "no such file") {
		t.Errorf("exit code %d and %q, want %d and the file that isn't there", got.code, got.err, ExitUsage)
	}
}

func TestHelpOfEachCommandShowsItsVariablesAndExitCodes(t *testing.T) {
	for command, spec := range map[string]any{
		"worker": config.Worker{}, "starter": config.Starter{}, "devices": config.Client{}, "device": config.Client{}, "pod": config.Client{}, "audit": config.Audit{},
	} {
		t.Run(command, func(t *testing.T) {
			got := run(t, command, "--help")
			if got.code != ExitOK || !strings.Contains(got.out, "Exit codes:") {
				t.Errorf("exit code %d, want 0 and the exit codes in\n%s", got.code, got.out)
			}
			for _, v := range config.Variables(spec) {
				if !strings.Contains(got.out, v.Name) {
					t.Errorf("the help doesn't show %s", v.Name)
				}
			}
		})
	}
}

// The versions of modules aren't in a binary of tests; the page about upgrades has them.
func TestVersionTellsTheCatalogueAndWhatIsSpoken(t *testing.T) {
	text := run(t, "version")
	for _, want := range []string{
		"reason catalogue  20", "v1: configmaps, events, nodes, pods", "coordination.k8s.io/v1: leases",
		"resource.k8s.io/v1 or resource.k8s.io/v1beta2: devicetaintrules", "resource.k8s.io/v1: resourceclaims, resourceslices",
		"SDK v1.", "device, state 1", "sickbay.dev/quarantined, format 1", "format 1",
	} {
		if text.code != ExitOK || !strings.Contains(text.out, want) {
			t.Errorf("exit code %d, and nothing says %q in\n%s", text.code, want, text.out)
		}
	}
	var read struct {
		build
		Speaks spoken
	}
	if err := json.Unmarshal([]byte(run(t, "version", "-o", "json").out), &read); err != nil || read.Catalogue == "" || read.Go == "" {
		t.Errorf("JSON reads as %+v, %v", read, err)
	}
	if want := spokenOf(); !reflect.DeepEqual(read.Speaks, want) {
		t.Errorf("JSON reads as %+v, want %+v", read.Speaks, want)
	}
}

func TestCompletionKnowsTheCommandsAndTheirWords(t *testing.T) {
	if got := run(t, "__complete", "dev"); !strings.Contains(got.out, "devices") {
		t.Errorf("completing dev offers %q, want devices", got.out)
	}
	if got := run(t, "__complete", "devices", "--output", ""); !strings.Contains(got.out, "wide") {
		t.Errorf("completing --output offers %q, want the formats", got.out)
	}
	if got := run(t, "completion", "bash"); got.code != ExitOK || !strings.Contains(got.out, "sickbay") {
		t.Errorf("no completion script for bash: exit code %d", got.code)
	}
}

// Cancelling is how a service is told to end; a command that was cancelled
// before it began has nothing to put down.
func TestACancelledCommandEndsWithoutAnError(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(unreachable), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SICKBAY_KUBECONFIG", kubeconfig)
	t.Setenv("SICKBAY_HTTP_ADDRESS", "127.0.0.1:0")
	// Nothing listens on the discard port.
	t.Setenv("SICKBAY_TEMPORAL_ADDRESS", "127.0.0.1:9")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, command := range [][]string{{"worker"}, {"devices", "--watch"}} {
		var out, failed strings.Builder
		if code := Run(ctx, command, Streams{Out: &out, Err: &failed}); code != ExitOK {
			t.Errorf("%v ended with exit code %d and %s", command, code, failed.String())
		}
	}
}

const unreachable = `apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "https://127.0.0.1:9"}}]
users: [{name: none, user: {}}]
contexts: [{name: none, context: {cluster: none, user: none, namespace: team-a}}]
current-context: none
`
