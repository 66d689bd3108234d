package cmd

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sickbay-dev/sickbay/pkg/config"
)

// All calls of a process to the API server go by one limit, whichever client makes
// them. Proves a part of B3: what of it is about migrations comes with them.
func TestAllCallsOfAProcessGoByOneLimit(t *testing.T) {
	var mu sync.Mutex
	var came []time.Time
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		came = append(came, time.Now())
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[]}`)) // a client that is gone fails by itself
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	set := clientcmdapi.NewConfig()
	set.Clusters["one"] = &clientcmdapi.Cluster{Server: server.URL}
	set.Contexts["one"] = &clientcmdapi.Context{Cluster: "one"}
	set.CurrentContext = "one"
	if err := clientcmd.WriteToFile(*set, kubeconfig); err != nil {
		t.Fatal(err)
	}
	const perSecond, burst, calls = 20, 10, 15
	c, err := connectKubernetes(config.Kubernetes{Kubeconfig: kubeconfig, KubeQPS: perSecond, KubeBurst: burst}, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var asking sync.WaitGroup
	for range calls {
		asking.Go(func() {
			if _, err := c.typed.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Error(err)
			}
		})
		asking.Go(func() {
			nodes := schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
			if _, err := c.untyped.Resource(nodes).List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	asking.Wait()
	if len(came) != 2*calls {
		t.Fatalf("%d calls came, want %d", len(came), 2*calls)
	}
	least := time.Duration(2*calls-burst) * time.Second / perSecond
	if took := came[len(came)-1].Sub(began); took < least-least/10 {
		t.Errorf("%d calls took %s; at %d a second after the first %d they take %s", 2*calls, took, perSecond, burst, least)
	}
}
