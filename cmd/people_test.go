package cmd

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sickbay-dev/sickbay/cmd/listing"
)

// runAs is run of a binary under another name.
func runAs(t *testing.T, called string, args ...string) ran {
	t.Helper()
	var out, failed strings.Builder
	code := RunAs(t.Context(), called, args, Streams{Out: &out, Err: &failed})
	return ran{code: code, out: out.String(), err: failed.String()}
}

func TestAsAPluginOfKubectlItSaysWhatItsUserHasToType(t *testing.T) {
	for _, command := range []string{"devices", "device", "pod"} {
		help := runAs(t, "/usr/local/bin/kubectl-sickbay", command, "--help").out
		for _, want := range []string{"Usage:\n  kubectl sickbay " + command, "Examples:\n  kubectl sickbay " + command} {
			if !strings.Contains(help, want) {
				t.Errorf("the help of %s doesn't say %q:\n%s", command, want, help)
			}
		}
		for line := range strings.Lines(help) {
			if strings.HasPrefix(line, "  sickbay ") || strings.Contains(line, "`sickbay ") {
				t.Errorf("the help of %s shows %q", command, line)
			}
		}
		if own := run(t, command, "--help").out; strings.Contains(own, "kubectl sickbay") || !strings.Contains(own, "Usage:\n  sickbay "+command) {
			t.Errorf("by its own name the help of %s speaks of kubectl:\n%s", command, own)
		}
	}
	if got := runAs(t, "kubectl-sickbay", "device"); !strings.Contains(got.err, "`kubectl sickbay devices --faulty -o name`") || got.code != ExitUsage {
		t.Errorf("the remedy isn't one for the plugin's user: %q", got.err)
	}
	if got := runAs(t, "kubectl-sickbay", "devises"); !strings.Contains(got.err, `there is no command "devises"; did you mean device or devices?`) {
		t.Errorf("says %q of a word misspelt", got.err)
	}
}

// kubectl gives what stands behind `kubectl sickbay` to kubectl_complete-sickbay,
// and reads what cobra's own completion answers (k8s.io/kubectl
// pkg/cmd/plugin, PluginCompletion).
func TestKubectlGetsItsCompletions(t *testing.T) {
	if got := runAs(t, "kubectl_complete-sickbay", "dev"); !strings.Contains(got.out, "devices\t") || !strings.Contains(got.out, ":4\n") {
		t.Errorf("completing dev answers %q, want devices and a directive", got.out)
	}
	if got := runAs(t, "kubectl_complete-sickbay", "devices", "--sort-by", "se"); !strings.Contains(got.out, "severity\n") {
		t.Errorf("completing a flag's value answers %q, want severity", got.out)
	}
}

func TestWordsAreCompletedInListsToo(t *testing.T) {
	for typed, want := range map[string]string{
		"Quar":                "Quarantined\n",
		"Quarantined,Su":      "Quarantined,Suspect\n",
		"Quarantined,Gone,No": "Quarantined,Gone,None\n",
	} {
		if got := run(t, "__complete", "devices", "--phase", typed); !strings.HasPrefix(got.out, want) {
			t.Errorf("%s is completed by %q, want %q", typed, got.out, want)
		}
	}
	if got := run(t, "__complete", "devices", "--reason", "XidFallen"); !strings.HasPrefix(got.out, "XidFallenOffBus\n") {
		t.Errorf("a reason is completed by %q", got.out)
	}
}

func TestManyNamesAreCompletedPartByPart(t *testing.T) {
	var names []string
	for _, node := range []string{"node-1", "node-2"} {
		for i := range 30 {
			names = append(names, "gpu.example.com/"+node+"/gpu-"+string(rune('a'+i)))
		}
	}
	for name, tc := range map[string]struct {
		typed   string
		want    []string
		goingOn bool
	}{
		"the driver of them all":   {"g", []string{"gpu.example.com/"}, true},
		"their pools":              {"gpu.example.com/", []string{"gpu.example.com/node-1/", "gpu.example.com/node-2/"}, true},
		"few enough to name whole": {"gpu.example.com/node-2/gpu-b", []string{"gpu.example.com/node-2/gpu-b"}, false},
		"none":                     {"nic", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, directive := offer(names, tc.typed)
			if !slices.Equal(got, tc.want) || directive&cobra.ShellCompDirectiveNoSpace != 0 != tc.goingOn {
				t.Errorf("offers %v and directive %d, want %v, going on %v", got, directive, tc.want, tc.goingOn)
			}
		})
	}
}

func TestAPodIsNamedAsKubectlsUsersDo(t *testing.T) {
	for name, tc := range map[string]struct {
		text, flag string
		want       string
		err        string
	}{
		"with its namespace":          {"team-a/train-0", "", "team-a/train-0", ""},
		"in the kubeconfig's":         {"train-0", "", "default/train-0", ""},
		"in that of the flag":         {"train-0", "team-b", "team-b/train-0", ""},
		"twice the same":              {"team-a/train-0", "team-a", "team-a/train-0", ""},
		"in two namespaces":           {"team-a/train-0", "team-b", "", `"team-a/train-0" is in another namespace than --namespace team-b; leave one of them out`},
		"by a kind":                   {"pods/team-a/train-0", "", "", `"pods/team-a/train-0" isn't a Pod: want NAMESPACE/NAME`},
		"without a name":              {"team-a/", "", "", `"team-a/" isn't a Pod: want NAMESPACE/NAME`},
		"with a namespace left empty": {"/train-0", "", "", `"/train-0" isn't a Pod: want NAMESPACE/NAME`},
	} {
		t.Run(name, func(t *testing.T) {
			namespace, pod, err := (&podFlags{namespace: tc.flag}).podName(tc.text, "default")
			switch {
			case tc.err != "":
				if err == nil || err.Error() != tc.err || exitCode(err) != ExitUsage {
					t.Errorf("says %v, want %q and exit code %d", err, tc.err, ExitUsage)
				}
			case err != nil || namespace+"/"+pod != tc.want:
				t.Errorf("names %s/%s, %v; want %s", namespace, pod, err, tc.want)
			}
		})
	}
}

func TestWhatIsNotThereHasAnExitCodeOfItsOwn(t *testing.T) {
	survey := listing.NewSurvey(listing.Cluster{})
	key, err := survey.Resolve("gpu.example.com/node-1/gpu-0")
	if err != nil {
		t.Fatal(err)
	}
	if got := exitCode(survey.Unknown(key, false)); got != ExitNotFound {
		t.Errorf("exit code %d, want %d", got, ExitNotFound)
	}
	if _, err := survey.Resolve("gpu-0"); exitCode(err) != ExitUsage {
		t.Errorf("exit code %d of %v, want %d", exitCode(err), err, ExitUsage)
	}
}

func TestALinkLeadsToTheRunThatIsOpenNow(t *testing.T) {
	s := &sources{namespace: "sickbay", ui: "https://temporal.example.com/"}
	want := "https://temporal.example.com/namespaces/sickbay/workflows/device%2Fgpu.example.com%2Fnode-1%2Fgpu-0/run-1/user-metadata"
	if got := s.link("device/gpu.example.com/node-1/gpu-0", "run-1"); got != want {
		t.Errorf("links to %s, want %s", got, want)
	}
	if got := (&sources{namespace: "sickbay"}).link("device/x", "run-1"); got != "" {
		t.Errorf("links to %s although no UI is configured", got)
	}
}

func TestFlagsOverrideWhereTheClusterIs(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(unreachable), 0o600); err != nil {
		t.Fatal(err)
	}
	f := peopleFlags{kubeconfig: kubeconfig, context: "none"}
	from, err := f.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer from.close()
	if from.defaultNamespace != "team-a" {
		t.Errorf("namespace %q, want team-a of the kubeconfig that the flag names", from.defaultNamespace)
	}
	f.context = "other"
	if _, err := f.connect(); exitCode(err) != ExitUsage || !strings.Contains(err.Error(), "other") {
		t.Errorf("with a context that there isn't: %v", err)
	}
	got := run(t, "device", "gpu.example.com/node-1/gpu-0", "--kubeconfig", kubeconfig)
	if got.code != ExitFailure || !strings.Contains(got.err, "nothing could be read from the cluster") {
		t.Errorf("without a cluster exit code %d and %q", got.code, got.err)
	}
}
