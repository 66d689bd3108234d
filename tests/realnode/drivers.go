package realnode

// This file runs fake DRA drivers and device plugins on the node, each a process
// of its own that can be killed and started again.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/tests/fakedriver"
	"github.com/sickbay-dev/sickbay/tests/fakeplugin"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// process is a part of the node that writes its control's address to a file.
type process struct {
	node        *Node
	name        string
	addressFile string
}

// Name is its name in the stack, for Stack.Log.
func (p process) Name() string { return p.name }

// Stop ends it with SIGTERM: its sockets are removed, and the kubelet sees it
// leave.
func (p process) Stop(ctx context.Context) error { return p.node.stack.StopPart(ctx, p.name) }

// Crash ends it as kill -9 does: its sockets stay.
func (p process) Crash(context.Context) error { return p.node.stack.KillPart(p.name) }

// address is the control's address; an error until it listens.
func (p process) address() (string, error) {
	raw, err := os.ReadFile(p.addressFile)
	return string(raw), err
}

// again starts it once more and returns the new address.
func (p process) again(ctx context.Context) (string, error) {
	if err := os.Remove(p.addressFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("start %s again: %w", p.name, err)
	}
	if err := p.node.stack.StartPart(ctx, p.name); err != nil {
		return "", err
	}
	return p.address()
}

// Driver is a fake DRA driver that runs on the node.
type Driver struct {
	process
	*fakedriver.Client
	// Config is what it was started with, with the node's part filled in.
	Config fakedriver.Config
}

// Crash ends the driver as kill -9 does: its sockets and slices stay.
func (d *Driver) Crash(ctx context.Context) error { return d.process.Crash(ctx) }

// Start starts a driver that was stopped or has crashed, on the same hardware.
func (d *Driver) Start(ctx context.Context) error {
	address, err := d.again(ctx)
	if err != nil {
		return err
	}
	d.Client = fakedriver.NewClient(address)
	return d.WaitRegistered(ctx)
}

// StartDriver runs a driver on the node and returns when the kubelet has
// accepted it. Node, kubeconfig and directories of the configuration are filled
// in. A second instance of one driver, for a rolling upgrade, needs an Instance,
// and so does the first.
func (n *Node) StartDriver(ctx context.Context, c fakedriver.Config) (*Driver, error) {
	d, err := n.LaunchDriver(ctx, c)
	if err != nil {
		return nil, err
	}
	return d, d.WaitRegistered(ctx)
}

// LaunchDriver is StartDriver without the wait for the kubelet.
func (n *Node) LaunchDriver(ctx context.Context, c fakedriver.Config) (*Driver, error) {
	kubeconfig, err := n.driverKubeconfig(ctx)
	if err != nil {
		return nil, err
	}
	p := process{node: n, name: "driver-" + c.Name}
	if c.Instance != "" {
		p.name += "-" + c.Instance
	}
	dir := n.path(p.name)
	p.addressFile = filepath.Join(dir, "address")
	c.Node, c.Kubeconfig, c.KubeletRoot, c.CDIDir = n.opts.Name, kubeconfig, n.kubeletRoot(), n.cdiDir()
	// Prepared claims are shared by the instances of one driver.
	c.StateDir, c.AddressFile = n.path("driver-"+c.Name), p.addressFile
	if err := n.launch(ctx, p, dir, "fakedriver", c.Args()); err != nil {
		return nil, err
	}
	address, err := p.address()
	if err != nil {
		return nil, fmt.Errorf("find the control of %s: %w", p.name, err)
	}
	return &Driver{process: p, Client: fakedriver.NewClient(address), Config: c}, nil
}

// Plugin is a fake device plugin that runs on the node.
type Plugin struct {
	process
	*fakeplugin.Client
	// Config is what it was started with, with the node's part filled in.
	Config fakeplugin.Config
}

// Crash ends the plugin as kill -9 does: its sockets stay.
func (p *Plugin) Crash(ctx context.Context) error { return p.process.Crash(ctx) }

// Start starts a plugin that was stopped or has crashed.
func (p *Plugin) Start(ctx context.Context) error {
	address, err := p.again(ctx)
	if err != nil {
		return err
	}
	p.Client = fakeplugin.NewClient(address)
	if !p.Config.Register {
		return nil
	}
	return p.WaitRegistered(ctx)
}

// StartPlugin runs a device plugin on the node and returns when the kubelet
// watches it, or at once if it is not to register. Directories of the configuration are filled in. Several plugins
// need an Instance each.
func (n *Node) StartPlugin(ctx context.Context, c fakeplugin.Config) (*Plugin, error) {
	p := process{node: n, name: "plugin"}
	if c.Instance != "" {
		p.name += "-" + c.Instance
	}
	dir := n.path(p.name)
	p.addressFile = filepath.Join(dir, "address")
	c.Dir, c.StateDir, c.AddressFile = pluginDir, dir, p.addressFile
	if err := n.launch(ctx, p, dir, "fakeplugin", c.Args()); err != nil {
		return nil, err
	}
	address, err := p.address()
	if err != nil {
		return nil, fmt.Errorf("find the control of %s: %w", p.name, err)
	}
	plugin := &Plugin{process: p, Client: fakeplugin.NewClient(address), Config: c}
	if !c.Register {
		return plugin, nil
	}
	return plugin, plugin.WaitRegistered(ctx)
}

func (n *Node) launch(ctx context.Context, p process, dir, program string, args []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	return n.startProcess(ctx, stack.Process{
		Name: p.name, Path: n.own[program], Args: args,
		Ready: func(context.Context) error { _, err := p.address(); return err },
	})
}

// driverUser is whom DRA drivers are to the API server: somebody with the
// rights of a vendor's driver.
const driverUser = "dra-driver"

// driverKubeconfig gives drivers what their Helm charts give them: slices, and
// reading claims and nodes.
func (n *Node) driverKubeconfig(ctx context.Context) (string, error) {
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: driverUser},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceslices"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
			{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims"}, Verbs: []string{"get"}},
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}},
		},
	}
	if _, err := n.client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("give drivers their rights: %w", err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: driverUser},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: driverUser},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: driverUser}},
	}
	if _, err := n.client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("give drivers their rights: %w", err)
	}
	return n.stack.UserKubeconfig(driverUser)
}
