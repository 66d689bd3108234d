package fakedriver

// This file is about one run of the driver process: it starts the vendors'
// helper library and the HTTP control, keeps the state that both change, and
// ends both.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// maxErrors is the number of background errors that are kept.
const maxErrors = 20

// publishRetry is the time after which a failed publication is tried again.
const publishRetry = time.Second

var errNoSuchDevice = errors.New("no such device")

type driver struct {
	cfg    Config
	log    *slog.Logger
	kube   kubernetes.Interface
	helper *kubeletplugin.Helper

	mu      sync.Mutex
	inv     inventory
	changed chan struct{} // closed and replaced at each change
	dirty   bool          // the slices are not like the inventory
	// newGeneration: the slices that are dirty get a new generation.
	newGeneration bool
	closes        int // streams opened before the n-th close end
	forced        int // counts reports that must not be lost
	silent        bool
	loss          lossy
	streams       []*Stream
	errors        []string
}

// Run is a driver process from start to end. It returns when ctx ends, having
// removed its sockets, or with the reason why it could not start.
func Run(ctx context.Context, cfg Config, log *slog.Logger) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	rest, err := clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig %s: %w", cfg.Kubeconfig, err)
	}
	kube, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return fmt.Errorf("make a client from kubeconfig %s: %w", cfg.Kubeconfig, err)
	}
	d := &driver{cfg: cfg, log: log, kube: kube, changed: make(chan struct{}), dirty: true, loss: newLossy(cfg.Loss, cfg.Seed)}

	plugins := filepath.Join(cfg.KubeletRoot, "plugins", cfg.Name)
	registry := filepath.Join(cfg.KubeletRoot, "plugins_registry")
	dirs := []string{plugins, registry, cfg.StateDir}
	if cfg.CDIDir != "" {
		dirs = append(dirs, cfg.CDIDir)
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make directory %s: %w", dir, err)
		}
	}
	if err := d.plugIn(); err != nil {
		return err
	}

	opts := []kubeletplugin.Option{
		kubeletplugin.DriverName(cfg.Name),
		kubeletplugin.KubeClient(kube),
		kubeletplugin.NodeName(cfg.Node),
		kubeletplugin.RegistrarDirectoryPath(registry),
		kubeletplugin.PluginDataDirectoryPath(plugins),
		kubeletplugin.GRPCStreamInterceptor(recordAPI),
		kubeletplugin.HealthService(cfg.HealthAPI != HealthNone),
		kubeletplugin.HealthV1(cfg.HealthAPI != HealthV1alpha1),
		kubeletplugin.HealthV1alpha1(cfg.HealthAPI != HealthV1),
	}
	if cfg.Instance != "" {
		opts = append(opts, kubeletplugin.RollingUpdate(types.UID(cfg.Instance)))
	}
	// The helper gets a context of its own: it must outlive ctx until Stop, or
	// its sockets stay behind.
	d.helper, err = kubeletplugin.Start(context.WithoutCancel(ctx), d, opts...)
	if err != nil {
		return fmt.Errorf("start DRA plugin %s: %w", cfg.Name, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var publisher sync.WaitGroup
	publisher.Go(func() { d.publish(ctx) })
	defer publisher.Wait()
	defer d.helper.Stop() // ends a publication that waits for the API server
	defer cancel()
	return d.serve(ctx)
}

// plugIn finds the hardware: that of the last run where there was one.
func (d *driver) plugIn() error {
	found, err := load(d.devicesFile(), &d.inv)
	if err != nil {
		return err
	}
	switch {
	case !found:
		d.inv = newInventory(d.cfg)
	case !d.cfg.Memory:
		d.inv.forget(d.cfg.Timeout)
	}
	return d.keep()
}

func (d *driver) devicesFile() string { return filepath.Join(d.cfg.StateDir, "devices.json") }

// keep writes the inventory, and with device-named CDI IDs the spec that
// describes it, to disk.
func (d *driver) keep() error {
	if err := save(d.devicesFile(), d.inv); err != nil {
		return err
	}
	if d.cfg.CDI != CDIDevice {
		return nil
	}
	spec, err := cdiSpec(CDIDevice, d.cfg.Name, "", d.inv.Devices)
	if err != nil {
		return fmt.Errorf("encode CDI spec: %w", err)
	}
	return writeFile(d.cdiPath(""), spec)
}

// wake makes every stream look again. The caller holds the lock.
func (d *driver) wake() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// changeHardware is change for what the slices show, at a new generation where
// devices came or went.
func (d *driver) changeHardware(newGeneration bool, f func() error) error {
	return d.change(func() error {
		if err := f(); err != nil {
			return err
		}
		d.dirty = true
		d.newGeneration = d.newGeneration || newGeneration
		return nil
	})
}

// change applies f to the state and makes the streams report it.
func (d *driver) change(f func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := f(); err != nil {
		return err
	}
	if err := d.keep(); err != nil {
		return err
	}
	d.wake()
	return nil
}

// publish keeps the slices like the inventory until ctx ends. It runs beside
// everything else because the helper's first publication blocks until the API
// server answers, and a driver's health service does not.
func (d *driver) publish(ctx context.Context) {
	for {
		d.mu.Lock()
		dirty, newGeneration, changed := d.dirty, d.newGeneration, d.changed
		d.dirty, d.newGeneration = false, false
		devices := slices.Clone(d.inv.Devices)
		d.mu.Unlock()
		var retry <-chan time.Time
		if dirty {
			if err := d.publishOnce(ctx, devices, newGeneration); err != nil && ctx.Err() == nil {
				d.HandleError(ctx, err, "publish")
				d.mu.Lock()
				d.dirty, d.newGeneration = true, d.newGeneration || newGeneration
				d.mu.Unlock()
				retry = time.After(publishRetry)
			}
		}
		select {
		case <-changed:
		case <-retry:
		case <-ctx.Done():
			return
		}
	}
}

// publishOnce writes the slices anew. For a new generation it asks the API
// server for the present one first, because the helper keeps the generation
// when only one slice changes.
func (d *driver) publishOnce(ctx context.Context, devices []Device, newGeneration bool) error {
	var generation int64
	if newGeneration {
		list, err := d.kube.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: "spec.driver=" + d.cfg.Name})
		if err != nil {
			return fmt.Errorf("list the slices of %s: %w", d.cfg.Name, err)
		}
		for _, s := range list.Items {
			if s.Spec.Pool.Name == d.cfg.poolName() {
				generation = max(generation, s.Spec.Pool.Generation)
			}
		}
		generation++
	}
	if err := d.helper.PublishResources(ctx, resources(d.cfg.poolName(), devices, generation)); err != nil {
		return fmt.Errorf("publish the slices of %s: %w", d.cfg.Name, err)
	}
	return nil
}
