package realnode

// This file starts containerd, with CDI and a bridge network, and gives it the
// one image there is.

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sickbay-dev/sickbay/tests/stack"
)

// containerdConfig is a configuration of version 3 (containerd 2.x). %[1]s is
// the node's directory, %[2]s the CNI plugins', %[3]s the sandbox image.
//
// restrict_oom_score_adj: without CAP_SYS_RESOURCE, as in a container, a
// process may not lower it. netns_mounts_under_state_dir and the runc root keep
// everything below the node's directory, where a clean-up finds it.
const containerdConfig = `version = 3
root = "%[1]s/containerd/root"
state = "%[1]s/containerd/state"
[grpc]
  address = "%[1]s/containerd.sock"
[ttrpc]
  address = "%[1]s/containerd.ttrpc.sock"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "%[3]s"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  enable_cdi = true
  cdi_spec_dirs = ["%[1]s/cdi"]
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["%[2]s"]
    conf_dir = "%[1]s/cni"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false
      Root = "%[1]s/runc"
[plugins.'io.containerd.grpc.v1.cri']
  stream_server_address = "127.0.0.1"
`

// cniConfig is a bridge whose way out is the machine, which leads to Services (see
// services.go) and, without NAT, to nothing else.
const cniConfig = `{"cniVersion": "0.4.0", "name": "sickbay", "plugins": [
 {"type": "bridge", "bridge": "` + bridge + `", "isGateway": true, "ipMasq": false,
  "ipam": {"type": "host-local", "dataDir": "%s", "ranges": [[{"subnet": "` + podNet + `"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
 {"type": "loopback"}]}
`

func (n *Node) path(name string) string { return filepath.Join(n.machine.dir, name) }

func (n *Node) cdiDir() string { return n.path("cdi") }

func (n *Node) startRuntime(ctx context.Context) error {
	for _, dir := range []string{n.cdiDir(), n.path("cni")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("prepare containerd: %w", err)
		}
	}
	files := map[string]string{
		n.path("containerd.toml"):      fmt.Sprintf(containerdConfig, n.machine.dir, n.machine.cni, Image),
		n.path("cni/10-node.conflist"): fmt.Sprintf(cniConfig, n.path("cni-ipam")),
	}
	for path, content := range files {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return fmt.Errorf("prepare containerd: %w", err)
		}
	}
	err := n.startProcess(ctx, stack.Process{
		Name: Containerd,
		Path: n.programs[stack.PartContainerd],
		Args: []string{"--config", n.path("containerd.toml")},
		// The shim is looked for in PATH.
		Env:        []string{"PATH=" + filepath.Dir(n.programs[stack.PartContainerdShim]) + ":" + os.Getenv("PATH")},
		Ready:      func(ctx context.Context) error { return n.ctr(ctx, "version") },
		LeaveGroup: true,
	})
	if err != nil {
		return err
	}
	archive := n.path("image.tar")
	if err := writeImage(archive, n.own["pause"]); err != nil {
		return err
	}
	return n.ImportImage(ctx, archive)
}

// ImportImage makes an image known to the node, under the names that its archive
// gives it. Pods find it unless they want it pulled.
func (n *Node) ImportImage(ctx context.Context, archive string) error {
	if err := n.ctr(ctx, "--namespace", "k8s.io", "images", "import", "--local", archive); err != nil {
		return fmt.Errorf("import the image %s: %w", archive, err)
	}
	return nil
}

// TagImage gives an image that the node knows another name beside its own.
func (n *Node) TagImage(ctx context.Context, name, other string) error {
	if err := n.ctr(ctx, "--namespace", "k8s.io", "images", "tag", name, other); err != nil {
		return fmt.Errorf("call the image %s %s: %w", name, other, err)
	}
	return nil
}

// ctr runs containerd's own client.
func (n *Node) ctr(ctx context.Context, args ...string) error {
	return run(ctx, n.programs[stack.PartCtr], append([]string{"--address", n.path("containerd.sock")}, args...)...)
}

// mergePatch encodes a JSON merge patch.
func mergePatch(v any) ([]byte, error) {
	patch, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode a patch: %w", err)
	}
	return patch, nil
}
