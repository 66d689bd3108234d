package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// resourceGroup is the API group of dynamic resource allocation.
const resourceGroup = "resource.k8s.io"

// taintRules is the resource that marks are.
const taintRules = "devicetaintrules"

// taintRuleVersions are the versions of the DeviceTaintRule API that Sickbay
// speaks, the best first: v1 is served from 1.37, v1beta2 in 1.36 where an
// operator turned it on (KEP-5055).
var taintRuleVersions = []string{"v1", "v1beta2"}

// Capabilities is what a cluster serves of the APIs that Sickbay can do without.
// It is found by discovery, never derived from the server's version.
type Capabilities struct {
	// TaintRules is the API to mark DRA devices with; empty where none is served.
	TaintRules schema.GroupVersionResource
}

// CanMark tells whether single DRA devices can be kept out of allocation.
func (c Capabilities) CanMark() bool { return !c.TaintRules.Empty() }

// Discover asks the API server what it serves.
func Discover(_ context.Context, client discovery.DiscoveryInterface) (Capabilities, error) {
	for _, version := range taintRuleVersions {
		gv := schema.GroupVersion{Group: resourceGroup, Version: version}
		list, err := client.ServerResourcesForGroupVersion(gv.String())
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return Capabilities{}, fmt.Errorf("discover the resources of %s: %w", gv, err)
		}
		for _, r := range list.APIResources {
			if r.Name == taintRules {
				return Capabilities{TaintRules: gv.WithResource(r.Name)}, nil
			}
		}
	}
	return Capabilities{}, nil
}

// Discovery keeps the last answer for a while, so that a mark costs no extra
// request and an API that appears later is still found.
type Discovery struct {
	client discovery.DiscoveryInterface
	ttl    time.Duration
	now    func() time.Time

	mu    sync.Mutex
	last  Capabilities
	asked time.Time
}

// NewDiscovery returns a Discovery that asks again after ttl.
func NewDiscovery(client discovery.DiscoveryInterface, ttl time.Duration) *Discovery {
	return &Discovery{client: client, ttl: ttl, now: time.Now}
}

// Capabilities answers from memory or asks the API server.
func (d *Discovery) Capabilities(ctx context.Context) (Capabilities, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.asked.IsZero() && d.now().Sub(d.asked) < d.ttl {
		return d.last, nil
	}
	found, err := Discover(ctx, d.client)
	if err != nil {
		return Capabilities{}, err
	}
	d.last, d.asked = found, d.now()
	return found, nil
}

// Forget makes the next question go to the API server.
func (d *Discovery) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = time.Time{}
}
