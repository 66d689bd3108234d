package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// SimulatorUser is the user under which simulated nodes talk to the API server.
// It is a cluster admin, and the audit log leaves it out: a thousand
// heartbeating nodes would bury the calls that a test wants to see there.
const SimulatorUser = "simulator"

// The users of the static token file and their groups. The scheduler and the
// controller manager get their rights from RBAC's bootstrap roles.
func tokenUsers() map[string][]string {
	return map[string][]string{
		"admin":                          {"system:masters"},
		SimulatorUser:                    {"system:masters"},
		"system:kube-scheduler":          nil,
		"system:kube-controller-manager": nil,
	}
}

// auditPolicy records who called what, with the user and the verb, and no
// bodies: enough to compare the calls with the RBAC that ships.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ["` + SimulatorUser + `"]
- level: Metadata
`

// startControlPlane brings up etcd, the API server, and then the scheduler and
// the controller manager side by side.
func (s *Stack) startControlPlane(ctx context.Context) error {
	if err := s.prepareControlPlane(); err != nil {
		return fmt.Errorf("prepare the control plane: %w", err)
	}
	if err := s.StartProcess(ctx, s.etcdProcess()); err != nil {
		return err
	}
	if err := s.StartProcess(ctx, s.apiServerProcess()); err != nil {
		return err
	}
	return together(ctx,
		func(ctx context.Context) error { return s.StartProcess(ctx, s.schedulerProcess()) },
		func(ctx context.Context) error { return s.StartProcess(ctx, s.controllerManagerProcess()) },
		// Without it no Pod can be created in the default namespace.
		func(ctx context.Context) error { return s.awaitDefaultServiceAccount(ctx) },
	)
}

// prepareControlPlane writes certificates, tokens, kubeconfigs and the audit
// policy.
func (s *Stack) prepareControlPlane() error {
	var err error
	if s.pki, err = newPKI(filepath.Join(s.Dir(), "pki")); err != nil {
		return err
	}
	s.tokens = map[string]string{}
	var lines []string
	for user, groups := range tokenUsers() {
		s.tokens[user] = newToken()
		lines = append(lines, fmt.Sprintf("%s,%s,%s,%q", s.tokens[user], user, user, strings.Join(groups, ",")))
	}
	slices.Sort(lines)
	if err := os.WriteFile(s.pki.path("tokens.csv"), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.Dir(), "audit-policy.yaml"), []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	for user := range tokenUsers() {
		if err := writeKubeconfig(s.kubeconfigPath(user), s.tokenConfig(user)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stack) etcdProcess() Process {
	client, peer := "http://"+loopback(s.ports.port(portEtcd)), "http://"+loopback(s.ports.port(portEtcdPeer))
	return Process{
		Name: Etcd,
		Path: s.kubeBinary("etcd"),
		Args: []string{
			"--data-dir=" + filepath.Join(s.Dir(), "etcd"),
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=default=" + peer,
			// Survives kill -9 of the process, not a power cut: enough here, and
			// a commit costs microseconds instead of a disk flush.
			"--unsafe-no-fsync",
			"--log-level=warn",
		},
		Ready: httpReady(client+"/health", "", ""),
	}
}

func (s *Stack) apiServerProcess() Process {
	port := s.ports.port(portAPIServer)
	args := []string{
		"--etcd-servers=http://" + loopback(s.ports.port(portEtcd)),
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		// The kubernetes Service can't have a loopback endpoint; nothing here
		// uses it.
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--cert-dir=" + s.pki.path("apiserver"),
		"--tls-cert-file=" + s.pki.path("serving.crt"), "--tls-private-key-file=" + s.pki.path("serving.key"),
		"--client-ca-file=" + s.CAFile(), "--token-auth-file=" + s.pki.path("tokens.csv"),
		// The scheduler and the controller manager complain every few seconds if
		// the cluster has no front proxy authority; no such certificate exists.
		"--requestheader-client-ca-file=" + s.CAFile(), "--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--kubelet-client-certificate=" + s.pki.path("kubelet-client.crt"),
		"--kubelet-client-key=" + s.pki.path("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP,Hostname",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + s.pki.path("sa.key"),
		"--service-account-key-file=" + s.pki.path("sa.pub"),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--audit-policy-file=" + filepath.Join(s.Dir(), "audit-policy.yaml"), "--audit-log-path=" + s.AuditLog(),
		"--feature-gates=" + gateFlag(s.opts.featureGates(s.release)),
		"--v=1",
	}
	if config := s.opts.runtimeConfig(s.release); len(config) > 0 {
		args = append(args, "--runtime-config="+strings.Join(config, ","))
	}
	return Process{
		Name:  APIServer,
		Path:  s.kubeBinary("kube-apiserver"),
		Args:  append(args, s.opts.APIServerFlags...),
		Ready: httpReady(s.APIServerURL()+"/readyz", s.CAFile(), s.tokens["admin"]),
	}
}

func (s *Stack) schedulerProcess() Process {
	port := s.ports.port(portScheduler)
	return Process{
		Name:  Scheduler,
		Path:  s.kubeBinary("kube-scheduler"),
		Args:  append(s.controllerFlags("system:kube-scheduler", port), s.opts.SchedulerFlags...),
		Ready: httpReady("https://"+loopback(port)+"/readyz", s.CAFile(), ""),
	}
}

func (s *Stack) controllerManagerProcess() Process {
	port := s.ports.port(portControllerManager)
	args := append(s.controllerFlags("system:kube-controller-manager", port),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+s.pki.path("sa.key"),
		"--root-ca-file="+s.CAFile(),
	)
	return Process{
		Name:  ControllerManager,
		Path:  s.kubeBinary("kube-controller-manager"),
		Args:  append(args, s.opts.ControllerManagerFlags...),
		Ready: httpReady("https://"+loopback(port)+"/healthz", s.CAFile(), ""),
	}
}

// controllerFlags are what the scheduler and the controller manager share.
func (s *Stack) controllerFlags(user string, port int) []string {
	kubeconfig := s.kubeconfigPath(user)
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + s.pki.path("serving.crt"), "--tls-private-key-file=" + s.pki.path("serving.key"),
		"--leader-elect=false",
		// At the default 20 requests a second the controllers' first
		// ServiceAccounts alone take five seconds.
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--feature-gates=" + gateFlag(s.opts.featureGates(s.release)),
		"--v=2",
	}
}

func (s *Stack) kubeBinary(program string) string {
	return s.binary[Part("kube-"+s.release.version+"/"+program)]
}

// awaitDefaultServiceAccount waits for the controller manager to have made the
// ServiceAccount of the default namespace.
func (s *Stack) awaitDefaultServiceAccount(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		return err
	}
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			return nil
		}
		if !apierrors.IsNotFound(err) && ctx.Err() == nil {
			return fmt.Errorf("wait for the default ServiceAccount: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the default ServiceAccount: %w", errors.Join(err, context.Cause(ctx)))
		case <-ticker.C:
		}
	}
}
