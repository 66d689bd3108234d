package product

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sickbay-dev/sickbay/tests/deploy"
	"github.com/sickbay-dev/sickbay/tests/stack"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// SearchAttributes are what Sickbay wants of a Temporal namespace, for
// stack.Options.
func SearchAttributes() map[string]string {
	wanted := map[string]string{}
	for name, kind := range devicewf.SearchAttributes() {
		wanted[name] = kind.String()
	}
	return wanted
}

// Environment points a command at a stack: at its Temporal, and at its cluster, as an
// administrator, if it runs one.
func Environment(st *stack.Stack) []string {
	env := []string{
		"SICKBAY_TEMPORAL_ADDRESS=" + st.TemporalAddress(), "SICKBAY_TEMPORAL_NAMESPACE=" + st.TemporalNamespace(),
	}
	if st.KubernetesVersion() != "" {
		env = append(env, "SICKBAY_KUBECONFIG="+st.Kubeconfig())
	}
	return env
}

// Service is one process of Sickbay.
type Service struct {
	// Binary is the path of sickbay.
	Binary string
	// Earlier is set for a binary of an earlier version.
	Earlier bool
	// Command is its subcommand, "starter" or "worker".
	Command string
	// Name is the process's in the stack. Default is Command.
	Name string
	// Env are variables beside those that point it at the stack, which they may
	// override.
	Env []string
	// Ready is the path that has to answer before it counts as started. Default
	// is /readyz; /healthz is for one that is to start before what it needs.
	Ready string
}

// Start runs a service as a process of a stack, and returns where it serves its
// metrics and probes once it is ready. Unless its variables name another kubeconfig it
// runs as its ServiceAccount, with the rights that are shipped for its mode.
func Start(ctx context.Context, st *stack.Stack, s Service) (address string, err error) {
	port, err := st.FreePort()
	if err != nil {
		return "", err
	}
	address = fmt.Sprintf("127.0.0.1:%d", port)
	account, err := accountOf(ctx, st, s)
	if err != nil {
		return "", err
	}
	url := "http://" + address + cmp.Or(s.Ready, "/readyz")
	err = st.StartProcess(ctx, stack.Process{
		Name: cmp.Or(s.Name, s.Command), Path: s.Binary, Args: []string{s.Command},
		Env:   slices.Concat(Environment(st), account, unbounded(s), []string{"SICKBAY_HTTP_ADDRESS=" + address}, s.Env),
		Ready: stack.Answers(url),
	})
	if err != nil {
		return "", fmt.Errorf("start sickbay %s: %w", s.Command, err)
	}
	return address, nil
}

// unbounded lifts a worker's budgets, of which clusters of a few devices are soon full.
// What is about budgets sets its own. An earlier version has none, and refuses variables
// that it doesn't know.
func unbounded(s Service) []string {
	if s.Earlier || s.Command != "worker" {
		return nil
	}
	return []string{"SICKBAY_BUDGET_CLUSTER=none", "SICKBAY_BUDGET_CLASS=none"}
}

// accountOf points a service at the stack's cluster as the account that it has there.
func accountOf(ctx context.Context, st *stack.Stack, s Service) (env []string, err error) {
	named := func(variable string) bool { return strings.HasPrefix(variable, "SICKBAY_KUBECONFIG=") }
	if st.KubernetesVersion() == "" || slices.ContainsFunc(s.Env, named) {
		return nil, nil
	}
	var components []string
	if slices.Contains(s.Env, "SICKBAY_MODE=enforce") {
		components = append(components, deploy.Enforce)
	}
	accounts, err := deploy.Grant(ctx, st, components...)
	if err != nil {
		return nil, fmt.Errorf("give sickbay %s its rights: %w", s.Command, err)
	}
	account := accounts.Worker
	if s.Command == "starter" {
		account = accounts.Starter
	}
	env = []string{"SICKBAY_KUBECONFIG=" + account.Kubeconfig, "SICKBAY_LEADER_ELECTION_NAMESPACE=" + deploy.Namespace}
	if !s.Earlier {
		env = append(env, "SICKBAY_POLICY_NAMESPACE="+deploy.Namespace)
	}
	return env, nil
}
