package kube

// This file finds and removes what was made for attempts.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
)

// CleanUp deletes all that was made for the device's attempts up to a token, and tells
// what is still there. It waits for nothing: what ends takes its time, and is asked for
// again. Pods go with their Jobs, and claims once their Pods have gone.
func (a *Attempts) CleanUp(ctx context.Context, c quarantine.CleanUp) (quarantine.Cleaned, error) {
	cleaned := quarantine.Cleaned{UpTo: c.UpTo}
	if a.namespace == "" || c.Device.Path() != device.PathDRA {
		return cleaned, nil // nothing was ever made
	}
	there, err := a.objects(ctx, c.Device)
	if err == nil {
		if there = there.upTo(c.UpTo); there.none() {
			return cleaned, nil
		}
		err = a.delete(ctx, there)
	}
	if err == nil {
		there, err = a.objects(ctx, c.Device)
		there = there.upTo(c.UpTo)
	}
	var refused *refusedError
	switch {
	case errors.As(err, &refused):
		cleaned.Failed = refused.Error()
	case err != nil:
		return cleaned, err
	case !there.none():
		cleaned.Failed = there.left()
	}
	return cleaned, nil
}

// made is what is there of attempts.
type made struct {
	jobs   []batchv1.Job
	pods   []corev1.Pod
	claims []resourcev1.ResourceClaim
}

// objects lists all that was ever made for a device and is still there.
func (a *Attempts) objects(ctx context.Context, key device.Key) (made, error) {
	var there made
	options := metav1.ListOptions{LabelSelector: selector(key)}
	jobs, err := a.client.BatchV1().Jobs(a.namespace).List(ctx, options)
	if err != nil {
		return there, a.sort(err, "list", "Jobs", "")
	}
	pods, err := a.client.CoreV1().Pods(a.namespace).List(ctx, options)
	if err != nil {
		return there, a.sort(err, "list", "Pods", "")
	}
	claims, err := a.client.ResourceV1().ResourceClaims(a.namespace).List(ctx, options)
	if err != nil {
		return there, a.sort(err, "list", "ResourceClaims", "")
	}
	return made{jobs: jobs.Items, pods: pods.Items, claims: claims.Items}, nil
}

// delete deletes Jobs, with their Pods, and claims, and nothing that has their names by
// now. What is going already is left to end.
func (a *Attempts) delete(ctx context.Context, m made) error {
	only := func(object metav1.Object) metav1.DeleteOptions {
		uid, background := object.GetUID(), metav1.DeletePropagationBackground
		return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background}
	}
	gone := func(err error) bool { return err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) }
	for i := range m.jobs {
		if job := &m.jobs[i]; job.DeletionTimestamp == nil {
			if err := a.client.BatchV1().Jobs(a.namespace).Delete(ctx, job.Name, only(job)); !gone(err) {
				return a.sort(err, "delete", "Job", job.Name)
			}
		}
	}
	for i := range m.claims {
		if claim := &m.claims[i]; claim.DeletionTimestamp == nil {
			if err := a.client.ResourceV1().ResourceClaims(a.namespace).Delete(ctx, claim.Name, only(claim)); !gone(err) {
				return a.sort(err, "delete", "ResourceClaim", claim.Name)
			}
		}
	}
	return nil
}

// filter keeps what has a token that is wanted. What has none that can be read was made
// by nobody of ours.
func (m made) filter(wanted func(token int64) bool) made {
	unwanted := func(object metav1.Object) bool {
		token, ours := tokenOf(object)
		return !ours || !wanted(token)
	}
	return made{
		jobs:   slices.DeleteFunc(slices.Clone(m.jobs), func(j batchv1.Job) bool { return unwanted(&j) }),
		pods:   slices.DeleteFunc(slices.Clone(m.pods), func(p corev1.Pod) bool { return unwanted(&p) }),
		claims: slices.DeleteFunc(slices.Clone(m.claims), func(c resourcev1.ResourceClaim) bool { return unwanted(&c) }),
	}
}

func (m made) upTo(token int64) made { return m.filter(func(t int64) bool { return t <= token }) }

func (m made) of(token int64) made { return m.filter(func(t int64) bool { return t == token }) }

// after are those of later attempts.
func (m made) after(token int64) made { return m.filter(func(t int64) bool { return t > token }) }

func (m made) none() bool { return len(m.jobs) == 0 && len(m.pods) == 0 && len(m.claims) == 0 }

// left names what is there, for people.
func (m made) left() string {
	var names []string
	name := func(kind string, object metav1.Object) {
		text := fmt.Sprintf("%s %s/%s", kind, object.GetNamespace(), object.GetName())
		if gone := object.GetDeletionTimestamp(); gone != nil {
			text += " (deleted, and held by " + cmp.Or(strings.Join(object.GetFinalizers(), ", "), "its kubelet") + ")"
		}
		names = append(names, text)
	}
	for i := range m.jobs {
		name("Job", &m.jobs[i])
	}
	for i := range m.pods {
		name("Pod", &m.pods[i])
	}
	for i := range m.claims {
		name("ResourceClaim", &m.claims[i])
	}
	return "still there: " + strings.Join(names, ", ")
}
