package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/kube"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// secretScene is a site whose Temporal wants a certificate and a key, and whose Redis
// a password.
type secretScene struct {
	*operator
	folder string
	// secrets are what must be nowhere, by what they are.
	secrets map[string]string
	// said is what the commands said.
	said strings.Builder
}

// file writes a secret into a file, in one step.
func (s *secretScene) file(name, content string) string {
	s.t.Helper()
	path := filepath.Join(s.folder, name)
	if err := errors.Join(os.WriteFile(path+".new", []byte(content+"\n"), 0o600), os.Rename(path+".new", path)); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// key is an API key that counts as a secret.
func (s *secretScene) key(what string, good time.Duration) string {
	s.t.Helper()
	key, err := s.stack.TemporalKey(what, good, s.stack.TemporalNamespace()+":write")
	if err != nil {
		s.t.Fatal(err)
	}
	// Its head is the same in all keys of this server, and says nothing.
	_, s.secrets[what], _ = strings.Cut(key, ".")
	return key
}

// tells runs a command and keeps what it said.
func (s *secretScene) tells(env []string, args ...string) answer {
	s.t.Helper()
	o := *s.operator
	o.env = append(o.env[:len(o.env):len(o.env)], env...)
	a := o.types(s.binary, args...)
	fmt.Fprintf(&s.said, "%s%s", a.out, a.err)
	return a
}

func newSecretScene(t *testing.T) *secretScene {
	t.Helper()
	c := start(t, stack.Options{
		Kubernetes: "1.37", Temporal: true, TemporalClientCertificates: true, TemporalKeys: true, Redis: true,
	}, 1, 2)
	s := &secretScene{operator: c.operator(), folder: t.TempDir(), secrets: map[string]string{}}
	const password = "correct-horse-battery-staple"
	s.secrets["Redis' password"] = password
	admin := redis.NewClient(&redis.Options{Addr: c.stack.RedisAddress()})
	defer admin.Close()
	if err := admin.ConfigSet(t.Context(), "requirepass", password).Err(); err != nil {
		t.Fatal(err)
	}
	cert, private, err := c.stack.TemporalCertificate("sickbay")
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(private)
	if err != nil {
		t.Fatal(err)
	}
	s.secrets["the certificate's private key"] = strings.Split(string(pem), "\n")[1]
	s.secrets["the starter's token"] = c.accounts.Starter.Config.BearerToken
	s.secrets["the worker's token"] = c.accounts.Worker.Config.BearerToken
	s.secrets["the administrator's token"] = c.stack.RESTConfig().BearerToken
	s.env = []string{
		"SICKBAY_LOG_LEVEL=debug",
		"SICKBAY_TEMPORAL_TLS_CA_FILE=" + c.stack.TemporalCA(),
		"SICKBAY_TEMPORAL_TLS_CERT_FILE=" + cert, "SICKBAY_TEMPORAL_TLS_KEY_FILE=" + private,
		"SICKBAY_TEMPORAL_API_KEY_FILE=" + s.file("api-key", s.key("the API key", time.Hour)),
		"SICKBAY_REDIS_ADDRESSES=" + c.stack.RedisAddress(), "SICKBAY_REDIS_PASSWORD_FILE=" + s.file("redis-password", password),
	}
	return s
}

// Starter, worker and commands read an API key, a private key, a Redis password and
// Kubernetes tokens, go with them through a case with its mark, messages that are
// taken and refused, and wrong secrets at each door, and log all that they log. None
// of it shows up anywhere: not in a history, a memo, a search attribute, the
// directory, an Event, a mark, a metric, a log, or an answer; neither as it is nor in
// base64.
//
// What is searched is proven to be what was written by a driver's message, which
// is found in each of the places. The test was seen to fail with the key in a log
// line of connectTemporal, with the password in identity (histories, Lease, logs and
// answers), and with the key in base64 in an Event.
func TestNoSecretShowsUpAnywhere(t *testing.T) {
	s := newSecretScene(t)
	worker := s.process("worker", "worker", "", append(fastEnvironment(), s.env...)...)
	starter := s.process("starter", "starter", "", append(starterEnvironment(), s.env...)...)
	key := s.runPod("train-0")
	const canary = "canary-in-a-coal-mine"
	s.set(key, corev1.ResourceHealthStatusUnhealthy, fallenOff+" "+canary)
	s.awaitInForce(key)
	s.messages(key)

	// Everything that can be asked with wrong secrets is.
	wrong := map[string]string{"a wrong key": "wrong.key-nobody-knows.at-all", "a wrong password": "wrong-password-nobody-knows", "a wrong token": "wrong-token-nobody-knows"}
	for what, secret := range wrong {
		s.secrets[what] = secret
	}
	for _, args := range [][]string{{"devices"}, {"device", key.String()}, {"pod", "default/train-0"}, {"audit", "--since", "1h"}, {"setup", "temporal", "--dry-run"}, {"doctor"}} {
		s.tells(nil, args...)
		for _, env := range []string{
			"SICKBAY_TEMPORAL_API_KEY_FILE=" + s.file("wrong-key", wrong["a wrong key"]),
			"SICKBAY_TEMPORAL_API_KEY_FILE=" + s.file("old-key", s.key("an expired key", -time.Hour)),
			"SICKBAY_REDIS_PASSWORD_FILE=" + s.file("wrong-password", wrong["a wrong password"]),
			"SICKBAY_KUBECONFIG=" + s.wrongKubeconfig(wrong["a wrong token"]),
		} {
			s.tells([]string{env}, args...)
		}
	}
	if said := s.said.String(); !strings.Contains(said, "expired at") || !strings.Contains(said, canary) {
		t.Errorf("the commands neither show the case nor say what is wrong:\n%s", said)
	}
	// And the services meet an expired key while they run.
	s.file("api-key", s.key("the key that expires", -time.Minute))
	s.eventually("the starter is refused", 30*time.Second, func(ctx context.Context) error {
		if said, err := fetch(ctx, "http://"+starter+"/readyz"); err != nil || !strings.Contains(said, "expired at") {
			return fmt.Errorf("it says %s, %v", said, err)
		}
		return nil
	})
	s.set(key, corev1.ResourceHealthStatusUnhealthy, fallenOff+" once more")
	// A message that is let in reaches the worker at once, which may not answer it.
	unanswered, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := s.cases.Send(unanswered, key, quarantine.Message{Verb: quarantine.VerbExtend, Actor: "oncall@example.com", Reason: "once more"}); err == nil {
		t.Error("a worker with an expired key answers")
	}
	s.eventually("the worker is refused", 60*time.Second, func(context.Context) error {
		if !strings.Contains(s.lastLines("worker", 1000), "expired at") {
			return errors.New("nothing in its log")
		}
		return nil
	})
	s.file("api-key", s.key("the new key", time.Hour))
	s.eventually("the starter is let in again", 30*time.Second, func(ctx context.Context) error {
		if said, err := fetch(ctx, "http://"+starter+"/readyz"); err != nil || !strings.Contains(said, "temporal: ok") {
			return fmt.Errorf("it says %s, %v", said, err)
		}
		return nil
	})
	s.eventually("the case answers again", 30*time.Second, func(ctx context.Context) error {
		_, err := s.cases.State(ctx, key)
		return err
	})

	places := s.places(key, worker, starter)
	places["what the commands said"] = []byte(s.said.String())
	forms := map[string][][]byte{}
	for what, secret := range s.secrets {
		if len(secret) < 20 {
			t.Fatalf("%s is %q: too short to be told from chance", what, secret)
		}
		forms[what] = spellings(secret)
	}
	for place, content := range places {
		if place != "metrics" && !containsAny(content, spellings(canary)) {
			t.Errorf("%s: %d bytes, and the driver's message isn't in them: what is searched isn't what was written", place, len(content))
		}
		for what, spelled := range forms {
			if containsAny(content, spelled) {
				t.Errorf("%s shows up in: %s", what, place)
			}
		}
	}
	if !bytes.Contains(places["metrics"], []byte("sickbay_")) {
		t.Errorf("no metrics are searched")
	}
}

// messages sends one that is taken and one that is refused.
func (s *secretScene) messages(key device.Key) {
	s.t.Helper()
	ctx := s.t.Context()
	if _, err := s.cases.Send(ctx, key, quarantine.Message{Verb: quarantine.VerbExtend, Actor: "oncall@example.com", Reason: "a spare is on its way"}); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.cases.Send(ctx, key, quarantine.Message{Verb: quarantine.VerbRelease, Actor: "oncall@example.com"}); err == nil {
		s.t.Fatal("a release that gives no reason is taken")
	}
}

// wrongKubeconfig is the administrator's with a token that nobody knows.
func (s *secretScene) wrongKubeconfig(token string) string {
	s.t.Helper()
	content, err := os.ReadFile(s.stack.Kubeconfig())
	if err != nil {
		s.t.Fatal(err)
	}
	changed := strings.Replace(string(content), s.stack.RESTConfig().BearerToken, token, 1)
	if changed == string(content) {
		s.t.Fatal("the kubeconfig has no token to replace")
	}
	return s.file("wrong.kubeconfig", changed)
}

// places are all that may have been written, by where it was.
func (s *secretScene) places(key device.Key, services ...string) map[string][]byte {
	s.t.Helper()
	places := map[string][]byte{"histories": s.histories()}
	for _, service := range services {
		said, err := fetch(s.t.Context(), "http://"+service+"/metrics")
		if err != nil {
			s.t.Fatal(err)
		}
		places["metrics"] = append(places["metrics"], said...)
	}
	for _, name := range []string{"starter", "worker"} {
		content, err := os.ReadFile(s.stack.Log(name))
		if err != nil {
			s.t.Fatal(err)
		}
		places["log of the "+name] = content
	}
	// Redis' append-only file has every key and every value that was ever written, as
	// it was sent.
	places["directory"] = s.files(filepath.Join(s.stack.Dir(), "appendonlydir"))
	places["cluster"] = s.objects()
	if !bytes.Contains(places["directory"], []byte(key.String())) {
		s.t.Errorf("the directory doesn't have %s", key)
	}
	return places
}

// histories are all workflows with their whole histories and all that is known of
// them besides, as they travel and as JSON, where payloads are in base64.
func (s *secretScene) histories() []byte {
	s.t.Helper()
	ctx := s.t.Context()
	var all bytes.Buffer
	add := func(message proto.Message) {
		raw, err := proto.Marshal(message)
		if err != nil {
			s.t.Fatal(err)
		}
		written, err := protojson.Marshal(message)
		if err != nil {
			s.t.Fatal(err)
		}
		all.Write(raw)
		all.Write(written)
	}
	list, err := s.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{})
	if err != nil || len(list.GetExecutions()) == 0 {
		s.t.Fatalf("%d workflows, %v", len(list.GetExecutions()), err)
	}
	add(list)
	for _, info := range list.GetExecutions() {
		id, run := info.GetExecution().GetWorkflowId(), info.GetExecution().GetRunId()
		described, err := s.temporal.DescribeWorkflow(ctx, id, run)
		if err != nil {
			s.t.Fatal(err)
		}
		add(described.RawResponse)
		events := s.temporal.GetWorkflowHistory(ctx, id, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		history := &historypb.History{}
		for events.HasNext() {
			event, err := events.Next()
			if err != nil {
				s.t.Fatal(err)
			}
			history.Events = append(history.Events, event)
		}
		add(history)
	}
	return all.Bytes()
}

// objects are the Events and what Sickbay writes into the cluster, as JSON.
func (s *secretScene) objects() []byte {
	s.t.Helper()
	capabilities, err := kube.Discover(s.t.Context(), s.discovery)
	if err != nil {
		s.t.Fatal(err)
	}
	var all []byte
	for _, resource := range []schema.GroupVersionResource{
		capabilities.TaintRules,
		{Version: "v1", Resource: "events"},
		{Version: "v1", Resource: "pods"},
		{Group: "events.k8s.io", Version: "v1", Resource: "events"},
		{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	} {
		list, err := s.dynamic.Resource(resource).List(s.t.Context(), metav1.ListOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		written, err := list.MarshalJSON()
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, written...)
	}
	return all
}

// files are the contents of all files in a folder.
func (s *secretScene) files(folder string) []byte {
	s.t.Helper()
	var all []byte
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		all = append(all, content...)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// spellings are the ways in which a text may be written: as it is, and in base64,
// which differs by where in what is encoded the text begins.
func spellings(text string) [][]byte {
	spelled := [][]byte{[]byte(text)}
	for before := range 3 {
		encoded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + text))
		// The ends mix with what stands beside the text.
		encoded = encoded[(before*8+5)/6 : len(encoded)-2]
		spelled = append(spelled, []byte(encoded), []byte(strings.NewReplacer("+", "-", "/", "_").Replace(encoded)))
	}
	return spelled
}

func containsAny(content []byte, any [][]byte) bool {
	for _, part := range any {
		if bytes.Contains(content, part) {
			return true
		}
	}
	return false
}

// fetch is what a URL says, whatever its status is.
func fetch(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	return string(said), err
}

// A text is found however it is written, wherever in what is encoded it begins.
func TestATextIsFoundInBase64(t *testing.T) {
	const secret = "correct-horse-battery-staple"
	for before := range 4 {
		content := strings.Repeat("?", before) + secret + strings.Repeat("!", before)
		for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
			if encoded := encoding.EncodeToString([]byte(content)); !containsAny([]byte("around "+encoded+" it"), spellings(secret)) {
				t.Errorf("not found in %s", encoded)
			}
		}
	}
	if containsAny([]byte(base64.StdEncoding.EncodeToString([]byte("correct-horse-battery-stable"))), spellings(secret)) {
		t.Error("something else is taken for it")
	}
}
