package realnode

// This file starts the kubelet. What is odd in its configuration is there for
// machines without systemd, without swap limits or with cgroup v1, which are
// most that tests run on.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"

	"github.com/sickbay-dev/sickbay/tests/stack"
)

func (n *Node) kubeletRoot() string { return n.path("kubelet") }

// kubeletConfig is a KubeletConfiguration.
func (n *Node) kubeletConfig(healthz int) map[string]any {
	gates := map[string]bool{"DRANodeAllocatableResources": true}
	maps.Copy(gates, n.opts.FeatureGates)
	config := map[string]any{
		"apiVersion":   "kubelet.config.k8s.io/v1beta1",
		"kind":         "KubeletConfiguration",
		"featureGates": gates,

		"failCgroupV1":           false,
		"cgroupDriver":           "cgroupfs",
		"cgroupRoot":             "/" + cgroupName,
		"cgroupsPerQOS":          true,
		"enforceNodeAllocatable": []string{"pods"},
		"failSwapOn":             false,

		"address":            nodeIP,
		"port":               10250,
		"readOnlyPort":       0,
		"healthzBindAddress": "127.0.0.1",
		"healthzPort":        healthz,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": false},
			"x509":      map[string]any{"clientCAFile": n.stack.CAFile()},
		},
		"authorization": map[string]any{"mode": "AlwaysAllow"},

		"containerRuntimeEndpoint": "unix://" + n.path("containerd.sock"),
		"makeIPTablesUtilChains":   false,
		"resolvConf":               "",
		"clusterDNS":               []string{dnsIP},
		"clusterDomain":            clusterDomain,

		// A test machine's full disk must not evict the test.
		"evictionHard":                map[string]string{"memory.available": "100Mi", "nodefs.available": "200Mi", "imagefs.available": "200Mi"},
		"imageGCHighThresholdPercent": 100,
	}
	if n.opts.SyncFrequency > 0 {
		config["syncFrequency"] = n.opts.SyncFrequency.String()
	}
	if n.opts.StatusFrequency > 0 {
		config["nodeStatusUpdateFrequency"] = n.opts.StatusFrequency.String()
	}
	return config
}

func (n *Node) startKubelet(ctx context.Context) error {
	part, err := stack.KubePart(n.opts.Kubelet, "kubelet")
	if err != nil {
		return err
	}
	healthz, err := n.stack.FreePort()
	if err != nil {
		return err
	}
	config, err := json.MarshalIndent(n.kubeletConfig(healthz), "", " ")
	if err != nil {
		return fmt.Errorf("encode the kubelet's configuration: %w", err)
	}
	if err := os.WriteFile(n.path("kubelet.json"), config, 0o600); err != nil {
		return fmt.Errorf("prepare the kubelet: %w", err)
	}
	if err := os.MkdirAll(n.kubeletRoot(), 0o755); err != nil {
		return fmt.Errorf("prepare the kubelet: %w", err)
	}
	kubeconfig, err := n.stack.UserKubeconfig("system:node:"+n.opts.Name, "system:nodes")
	if err != nil {
		return fmt.Errorf("make the kubelet's kubeconfig: %w", err)
	}
	return n.startProcess(ctx, stack.Process{
		Name: Kubelet,
		Path: n.programs[part],
		Args: []string{
			"--config=" + n.path("kubelet.json"), "--kubeconfig=" + kubeconfig,
			"--hostname-override=" + n.opts.Name, "--node-ip=" + nodeIP,
			"--root-dir=" + n.kubeletRoot(), "--cert-dir=" + n.path("kubelet-pki"), "--v=2",
		},
		Ready: healthy(fmt.Sprintf("http://127.0.0.1:%d/healthz", healthz)),
	})
}

// healthy asks a URL for status 200.
func healthy(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			body, err := io.ReadAll(io.LimitReader(resp.Body, 1000))
			return fmt.Errorf("%s: %s: %s (%v)", url, resp.Status, body, err)
		}
		return nil
	}
}
