package deploy_test

// This file applies the manifests to real control planes.

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// Both versions take all that is shipped without a warning, the strictest Pod Security
// Standard lets the Pods in, and the API server counts Sickbay's requests apart.
func TestTheManifestsAreTaken(t *testing.T) {
	for _, version := range stack.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			// The worker asks for nodes, which it may not list, to see in which flow it is.
			st := stack.Start(t, stack.Options{Kubernetes: version, Provokes: true})
			client := kubernetes.NewForConfigOrDie(st.RESTConfig())
			kubectl, err := deploy.FindKubectl(t.Context(), st.Kubeconfig())
			must(t, err)
			folders := shipped(t)
			// What has a namespace is only looked at once that is there.
			must(t, kubectl.Apply(t.Context(), folders["components/watch"]))
			must(t, kubectl.Apply(t.Context(), folders["components/enforce"]))
			for name, folder := range folders {
				if strings.HasPrefix(name, "components/") {
					continue // all of them together come too
				}
				if err := kubectl.Apply(t.Context(), folder, "--dry-run=server"); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			awaitPods(t, client, map[string]int{"starter": 2, "worker": 2})
			must(t, kubectl.Apply(t.Context(), folders["overlays/evaluation"], "--force-conflicts"))
			awaitPods(t, client, map[string]int{"temporal": 1, "redis": 1})
			apart(t, st, client)
		})
	}
}

// awaitPods waits until there are as many Pods of each Deployment: Pod Security looks
// at Pods, and not at what makes them.
func awaitPods(t *testing.T, client kubernetes.Interface, want map[string]int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		pods, err := client.CoreV1().Pods(deploy.Namespace).List(ctx, metav1.ListOptions{})
		missing := []string{fmt.Sprint(err)}
		if err == nil {
			missing = lacking(pods.Items, want)
		}
		if len(missing) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			events, err := client.CoreV1().Events(deploy.Namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "type=Warning"})
			must(t, err)
			for _, event := range events.Items {
				missing = append(missing, event.InvolvedObject.Name+": "+event.Message)
			}
			t.Fatalf("Pods: %s", strings.Join(missing, "\n"))
		}
	}
}

func lacking(pods []corev1.Pod, want map[string]int) (missing []string) {
	found := map[string]int{}
	for _, pod := range pods {
		// All of a Deployment's Pods have its name and two suffixes.
		name, _, _ := strings.Cut(pod.Name, "-")
		found[name]++
	}
	for name, count := range want {
		if found[name] < count {
			missing = append(missing, fmt.Sprintf("%d of %d of %s", found[name], count, name))
		}
	}
	return missing
}

// apart wants the requests of both ServiceAccounts in our flow and nobody else's, and
// the seats that deploy/base/flowcontrol.yaml tells of.
func apart(t *testing.T, st *stack.Stack, client kubernetes.Interface) {
	t.Helper()
	schema, err := client.FlowcontrolV1().FlowSchemas().Get(t.Context(), "sickbay", metav1.GetOptions{})
	must(t, err)
	for account, ours := range map[string]bool{"sickbay-starter": true, "sickbay-worker": true, "default": false} {
		config, err := st.ServiceAccountConfig(t.Context(), deploy.Namespace, account)
		must(t, err)
		for _, path := range []string{"/version", "/api/v1/nodes?limit=1"} {
			got := flowOf(t, config, path)
			if (got == string(schema.UID)) != ours {
				t.Errorf("GET %s by ServiceAccount %s is in flow %s, want ours (%s): %t", path, account, got, schema.UID, ours)
			}
		}
	}
	for metric, want := range map[string]int{
		"apiserver_flowcontrol_nominal_limit_seats": 24,
		"apiserver_flowcontrol_lower_limit_seats":   12,
		"apiserver_flowcontrol_upper_limit_seats":   24,
	} {
		raw, err := client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		must(t, err)
		found := regexp.MustCompile(metric + `\{priority_level="sickbay"\} (\d+)`).FindSubmatch(raw)
		if found == nil {
			t.Fatalf("the API server has no %s of our level", metric)
		}
		if got, err := strconv.Atoi(string(found[1])); err != nil || got != want {
			t.Errorf("%s is %s, want %d", metric, found[1], want)
		}
	}
}

// flowOf is the UID of the FlowSchema that a request falls under.
func flowOf(t *testing.T, config *rest.Config, path string) string {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	must(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, nil)
	must(t, err)
	answer, err := client.Do(request)
	must(t, err)
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	must(t, err)
	return answer.Header.Get("X-Kubernetes-Pf-Flowschema-Uid")
}
