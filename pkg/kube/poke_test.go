package kube

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sickbay-dev/sickbay/pkg/device"
)

// A poke changes a running watch Pod of ours and nothing else, and never ends it.
func TestOnlyARunningWatchPodIsPoked(t *testing.T) {
	poker := NewPoker(nil, "sickbay-watch")
	for sentence, c := range map[string]struct {
		change func(*corev1.Pod)
		want   int64
		why    string
	}{
		"the first poke sets a deadline of 63 years": {func(*corev1.Pod) {}, 2_000_000_000, ""},
		"each further one takes a second off":        {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To(int64(1_999_999_990)) }, 1_999_999_989, ""},
		"one that is nearly used up is left alone":   {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To(int64(1_000_000_000)) }, 0, "its deadline is down to 1000000000 s"},
		"one that somebody gave a deadline of its own isn't ended": {
			func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To(int64(3600)) }, 0, "its deadline is down to 3600 s"},
		"in another namespace nothing is touched": {func(p *corev1.Pod) { p.Namespace = "team-kestrel" }, 0, "it isn't in namespace sickbay-watch"},
		"a Pod without our label isn't ours":      {func(p *corev1.Pod) { p.Labels = nil }, 0, "it has no label sickbay.dev/watch"},
		"one that somebody made by hand":          {func(p *corev1.Pod) { p.OwnerReferences = nil }, 0, "no DaemonSet owns it"},
		"one that a Job made":                     {func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Job" }, 0, "no DaemonSet owns it"},
		"one that goes":                           {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, 0, "it doesn't run"},
		"one that hasn't begun":                   {func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, 0, "it doesn't run"},
	} {
		t.Run(sentence, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "sickbay-watch", Name: "watch-gpu-x", Labels: map[string]string{WatchLabel: "gpu.example.com"},
					OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "watch-gpu", Controller: ptr.To(true)}},
				},
				Status: corev1.PodStatus{Phase: corev1.PodRunning},
			}
			c.change(pod)
			got, err := poker.next(pod)
			if got != c.want || (err == nil) != (c.why == "") || err != nil && (!errors.Is(err, ErrNotPoked) || !strings.Contains(err.Error(), c.why)) {
				t.Errorf("deadline %d, %v; want %d, %q", got, err, c.want, c.why)
			}
		})
	}
}

// Where there are no watch Pods, no call is made to find that out.
func TestWithoutANamespaceNobodyIsPoked(t *testing.T) {
	poker := NewPoker(nil, "")
	if poked := poker.Device(t.Context(), device.Key{Driver: "gpu.example.com", Pool: "n", Device: "gpu-0"}, "n"); poked.Says != "" || poked.Acknowledged != nil {
		t.Errorf("poked %+v, want nothing said", poked)
	}
	if poked := NewPoker(nil, "sickbay-watch").Device(t.Context(), device.Key{Node: "n", Resource: "example.com/gpu", ID: "0"}, "n"); poked.Says != "" {
		t.Errorf("a device plugin's device: %q, want nothing: watch Pods are for DRA", poked.Says)
	}
}
