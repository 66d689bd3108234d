package watchpods

// This file writes the objects of a set of watch Pods.

import (
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/labels"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/sickbay-dev/sickbay/pkg/kube"
)

// Namespace is where watch Pods are unless a site says otherwise.
const Namespace = "sickbay-watch"

// Set is one set of watch Pods: a DaemonSet and the template of its claims.
type Set struct {
	Name      string
	Namespace string
	Image     string
	Driver    string
	// Class is the DeviceClass's name.
	Class string
	// PerDevice is the number of requests of one device each; zero is one request for
	// all of a node's devices.
	PerDevice int
	// Nodes are labels of the nodes to run on; none is every node.
	Nodes map[string]string
}

// DefaultName names the set of a driver.
func DefaultName(driver string) string {
	name := "watch-" + strings.ReplaceAll(driver, ".", "-")
	// A Pod's name has a suffix beside it, and a label with the name of its DaemonSet's
	// revision has 63 characters.
	const most = 52
	if len(name) > most {
		sum := fnv.New32a()
		_, _ = sum.Write([]byte(driver))
		name = fmt.Sprintf("%s-%08x", strings.TrimRight(name[:most-9], "-"), sum.Sum32())
	}
	return name
}

// Validate names what no API server would take.
func (s Set) Validate() error {
	for _, c := range []struct {
		flag, value string
		wrong       []string
	}{
		{"driver", s.Driver, validation.NameIsDNSSubdomain(s.Driver, false)},
		{"driver", s.Driver, utilvalidation.IsValidLabelValue(s.Driver)},
		{"class", s.Class, validation.NameIsDNSSubdomain(s.Class, false)},
		{"name", s.Name, utilvalidation.IsDNS1123Label(s.Name)},
		{"namespace", s.Namespace, utilvalidation.IsDNS1123Label(s.Namespace)},
	} {
		if len(c.wrong) > 0 {
			return fmt.Errorf("--%s %q: %s", c.flag, c.value, strings.Join(c.wrong, "; "))
		}
	}
	if s.PerDevice < 0 || s.PerDevice > MaxDevices {
		return fmt.Errorf("--request-per-device %d: want 1 to %d, as many as a claim can have", s.PerDevice, MaxDevices)
	}
	if s.Image == "" || strings.ContainsAny(s.Image, " \n\t\"") {
		return fmt.Errorf("--image %q: want an image's name", s.Image)
	}
	for key, value := range s.Nodes {
		if wrong := append(utilvalidation.IsQualifiedName(key), utilvalidation.IsValidLabelValue(value)...); len(wrong) > 0 {
			return fmt.Errorf("--node-selector %s=%s: %s", key, value, strings.Join(wrong, "; "))
		}
	}
	return nil
}

// Selector picks the nodes of the set.
func (s Set) Selector() labels.Selector { return labels.SelectorFromSet(s.Nodes) }

// Requests are the names of the claim's requests.
func (s Set) Requests() []string {
	if s.PerDevice == 0 {
		return []string{"all"}
	}
	var names []string
	for i := range s.PerDevice {
		names = append(names, fmt.Sprintf("d%d", i))
	}
	return names
}

// Label is the label by which watch Pods are known.
func (s Set) Label() string { return kube.WatchLabel }

// NodeLabels are the labels of Nodes, sorted.
func (s Set) NodeLabels() []string { return slices.Sorted(maps.Keys(s.Nodes)) }

// Write writes the objects as YAML.
func (s Set) Write(out io.Writer) error {
	if err := manifests.Execute(out, s); err != nil {
		return fmt.Errorf("write the manifests of %s: %w", s.Name, err)
	}
	return nil
}

// Namespace and PriorityClass are those of deploy/components/watch; a test compares.
var manifests = template.Must(template.New("manifests").Parse(`# Watch Pods for driver {{.Driver}}, by sickbay watch manifests. docs/watch.md tells what
# they give, what they cost, and when they have to be rolled.
#
# Whoever may create ResourceClaims or Pods in this namespace has access to every device
# of the cluster, held or not.
apiVersion: v1
kind: Namespace
metadata:
  name: {{.Namespace}}
  labels:
    resource.kubernetes.io/admin-access: "true"
    pod-security.kubernetes.io/enforce: restricted
    pod-security.kubernetes.io/warn: restricted
    pod-security.kubernetes.io/audit: restricted
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata:
  name: sickbay-watch
value: -1000000
preemptionPolicy: Never
description: Sickbay's watch Pods. After everybody, and never at anybody's cost.
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: {{.Name}}
  namespace: {{.Namespace}}
spec:
  spec:
    devices:
      requests:
{{- range .Requests}}
      - name: {{.}}
        exactly:
          deviceClassName: {{$.Class}}
{{- if $.PerDevice}}
          allocationMode: ExactCount
          count: 1
{{- else}}
          allocationMode: All
{{- end}}
          adminAccess: true
          selectors:
          - cel:
              expression: device.driver == "{{$.Driver}}"
          # A device that is kept out is still watched. The second one is no repetition:
          # without it a rule with NoExecute ends the Pod again and again.
          tolerations:
          - operator: Exists
          - operator: Exists
            effect: NoExecute
{{- end}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{.Name}}
  namespace: {{.Namespace}}
  labels: &labels
    app.kubernetes.io/name: sickbay
    app.kubernetes.io/component: watch
    app.kubernetes.io/instance: {{.Name}}
    {{.Label}}: {{.Driver}}
spec:
  selector:
    matchLabels:
      app.kubernetes.io/instance: {{.Name}}
      {{.Label}}: {{.Driver}}
  # The new Pod reports before the old one ends.
  updateStrategy:
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
  template:
    metadata:
      labels: *labels
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      priorityClassName: sickbay-watch
      terminationGracePeriodSeconds: 5
{{- if .Nodes}}
      nodeSelector:
{{- range $key := .NodeLabels}}
        {{$key}}: {{index $.Nodes $key | printf "%q"}}
{{- end}}
{{- end}}
      # Of nodes; those of devices are in the claim.
      tolerations:
      - operator: Exists
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        seccompProfile:
          type: RuntimeDefault
      resourceClaims:
      - name: devices
        resourceClaimTemplateName: {{.Name}}
      containers:
      - name: watch
        image: {{printf "%q" .Image}}
        imagePullPolicy: IfNotPresent
        args: [watch]
        resources:
          requests:
            cpu: 1m
            memory: 32Mi
          limits:
            memory: 64Mi
          claims:
{{- if .PerDevice}}
{{- range .Requests}}
          - name: devices
            request: {{.}}
{{- end}}
{{- else}}
          - name: devices
{{- end}}
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities:
            drop: [ALL]
`))
