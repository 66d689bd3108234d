package setup

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/pkg/reason"
	"github.com/sickbay-dev/sickbay/tests/product"
	devicewf "github.com/sickbay-dev/sickbay/workflows/device"
)

// service starts a process of Sickbay. It has no cluster, which no part of Temporal
// needs: a case opens, and is looked at and marked once there is one.
func (s *site) service(name, command, ready string, env ...string) (address string) {
	s.t.Helper()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["none"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	kubeconfig.Contexts["none"] = &clientcmdapi.Context{Cluster: "none"}
	kubeconfig.CurrentContext = "none"
	content, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		s.t.Fatal(err)
	}
	env = append(env, "SICKBAY_KUBECONFIG="+s.file("kubeconfig", string(content)), "SICKBAY_STOP_TIMEOUT=1s", "SICKBAY_DRAIN=1s",
		"SICKBAY_LEADER_ELECTION_NAMESPACE=default")
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	address, err = product.Start(ctx, s.stack, product.Service{
		Binary: s.binary, Command: command, Name: name, Ready: ready, Env: append(s.env[:len(s.env):len(s.env)], env...),
	})
	if err != nil {
		s.t.Fatalf("%v\n%s", err, s.log(name))
	}
	return address
}

// faultyDevice is one that a Pod reports as fallen off the bus.
func faultyDevice(t *testing.T) (device.Key, quarantine.Observed) {
	t.Helper()
	key, err := device.NewDRA("gpu.example.com", "node-0", "gpu-0")
	if err != nil {
		t.Fatal(err)
	}
	const message = "XID 79: GPU has fallen off the bus"
	match := reason.Builtin().Match(key.Driver, message)
	return key, quarantine.Observed{Node: key.Pool, Lost: true, Readings: []quarantine.Reading{{
		Report: device.Report{
			Pod: device.PodRef{Namespace: "default", Name: "train-0", UID: "train-0-uid"}, Node: key.Pool,
			Health: device.Unhealthy, Message: message, Version: "41", Observed: time.Now(), Fault: match.DeviceFault(),
		},
		Reason: match,
	}}}
}

// openCase opens a case and wants it to be found by each search attribute.
func (s *site) openCase(temporal client.Client) {
	s.t.Helper()
	key, seen := faultyDevice(s.t)
	cases := devicewf.NewClient(temporal, "sickbay")
	if err := cases.Open(s.t.Context(), key, seen, ""); err != nil {
		s.t.Fatal(err)
	}
	var state devicewf.State
	s.eventually("the case is open", func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if state, err = cases.State(ctx, key); err == nil && state.Case.Phase != quarantine.PhaseQuarantined {
			err = fmt.Errorf("it is %q", state.Case.Phase)
		}
		return err
	})
	values := map[string]string{
		devicewf.AttributeNode.GetName(): "node-0", devicewf.AttributeDriver.GetName(): key.Driver,
		devicewf.AttributePhase.GetName(): string(state.Case.Phase), devicewf.AttributeReason.GetName(): string(state.Case.Reason.Code),
		devicewf.AttributeEpoch.GetName(): fmt.Sprint(state.Case.Epoch),
	}
	if len(values) != len(devicewf.SearchAttributes()) {
		s.t.Fatalf("%d attributes are searched by, and there are %d", len(values), len(devicewf.SearchAttributes()))
	}
	for name, value := range values {
		s.eventually("the case is found by "+name, func(ctx context.Context) error {
			found, err := temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Query: fmt.Sprintf("%s = '%s'", name, value)})
			if err != nil {
				return err
			}
			if got := found.GetExecutions(); len(got) != 1 || got[0].GetExecution().GetWorkflowId() != devicewf.ID(key) {
				return fmt.Errorf("%s = %q finds %v", name, value, got)
			}
			return nil
		})
	}
}
