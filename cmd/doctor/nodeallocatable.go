package doctor

// This file finds out by dry runs whether drivers can say what their devices consume
// of a node.

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeAllocatableGate is the feature gate of KEP-5517, alpha in 1.36 and 1.37.
const nodeAllocatableGate = "DRANodeAllocatableResources"

// NodeAllocatable asks, with a dry run, whether the API server keeps what a driver
// says of the node resources that its devices consume (KEP-5517): one without the
// gate drops it without a word.
func (c Cluster) NodeAllocatable() Check {
	name := "kubernetes/node-allocatable"
	return Check{Name: name, Lost: "whether drivers can say what their devices consume of a node", Ask: func(ctx context.Context) ([]Finding, error) {
		f := Finding{Check: name, State: OK, Needed: "nothing in this version; the ledger of node resources will want the gate " + nodeAllocatableGate}
		shapes := map[string]map[string]any{
			"as in 1.36": {"nodeAllocatableResourceMappings": map[string]any{"cpu": map[string]any{"allocationMultiplier": "1"}}},
			"as in 1.37": {"nodeAllocatableResources": map[string]any{"cpu": map[string]any{"mapping": map[string]any{"deviceMultiplier": "1"}}}},
		}
		for _, shape := range []string{"as in 1.37", "as in 1.36"} {
			kept, err := c.keeps(ctx, shapes[shape])
			if apierrors.IsForbidden(err) && strings.Contains(err.Error(), nodeAllocatableGate) {
				// From 1.37 on each node has to declare it before a driver may say it.
				f.Found = "on, with fields " + shape + ", and not on every node: " + err.Error()
				return []Finding{f}, nil
			}
			if apierrors.IsForbidden(err) {
				f.State, f.Found = Unknown, err.Error()
				f.Without = "whether drivers can say what their devices consume of a node isn't known; nothing of this version needs it"
				f.Remedy = "Run it as somebody who may create ResourceSlices; it is no more than a dry run."
				return []Finding{f}, nil
			}
			if err != nil {
				return nil, err
			}
			if kept {
				f.Found = "on, with fields " + shape
				return []Finding{f}, nil
			}
		}
		f.Found = "off: the API server drops the field"
		return []Finding{f}, nil
	}}
}

// keeps tells whether a field of a device outlives a dry run. A server that refuses
// the slice for that field knows it.
func (c Cluster) keeps(ctx context.Context, field map[string]any) (bool, error) {
	dev := map[string]any{"name": "probe"}
	for key, value := range field {
		dev[key] = value
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": resourceV1, "kind": "ResourceSlice", "metadata": map[string]any{"name": "sickbay-doctor"},
		"spec": map[string]any{
			"driver": probeDriver, "allNodes": true, "devices": []any{dev},
			"pool": map[string]any{"name": "sickbay-doctor", "generation": 1, "resourceSliceCount": 1},
		},
	})
	if err != nil {
		return false, fmt.Errorf("encode a ResourceSlice: %w", err)
	}
	answer, err := raw(c.Kubernetes.CoreV1().RESTClient().Post().AbsPath("/apis", "resource.k8s.io", "v1", "resourceslices").
		Param("dryRun", metav1.DryRunAll).Param("fieldValidation", "Ignore").
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx))
	for key := range field {
		if apierrors.IsInvalid(err) && strings.Contains(err.Error(), key) {
			return true, nil
		}
		if err == nil {
			return strings.Contains(string(answer), key), nil
		}
	}
	return false, err
}
