package directory

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sickbay-dev/sickbay/pkg/device"
	"github.com/sickbay-dev/sickbay/pkg/directory"
	"github.com/sickbay-dev/sickbay/pkg/quarantine"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

// program finds redis-server, which stack.Start has installed by then.
func program(t testing.TB) string {
	t.Helper()
	if path, err := exec.LookPath("redis-server"); err == nil {
		return path
	}
	return "/usr/bin/redis-server"
}

// freePort takes a port of the stack.
func freePort(t testing.TB, st *stack.Stack) int {
	t.Helper()
	port, err := st.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// answers is ready once a server that needs no login answers.
func answers(port int) func(context.Context) error {
	return func(ctx context.Context) error {
		client := redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", port), MaxRetries: -1})
		defer client.Close()
		return client.Ping(ctx).Err()
	}
}

// run runs a further redis-server in a folder of its own, with these arguments.
func run(t testing.TB, st *stack.Stack, name string, ready func(context.Context) error, arguments ...string) {
	t.Helper()
	folder := filepath.Join(st.Dir(), name)
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	err := st.StartProcess(t.Context(), stack.Process{
		Name: name, Path: program(t), Args: append(arguments, "--dir", folder, "--bind", "127.0.0.1", "--daemonize", "no"), Ready: ready,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Proves a part of K4: a failover loses what wasn't replicated yet, and nothing
// else than the directory notices.
func TestBehindSentinelsTheDirectorySurvivesTheLossOfTheMaster(t *testing.T) {
	st := stack.Start(t, stack.Options{Redis: true})
	_, master, err := net.SplitHostPort(st.RedisAddress())
	if err != nil {
		t.Fatal(err)
	}
	replica := freePort(t, st)
	run(t, st, "replica", answers(replica), "--port", fmt.Sprint(replica), "--replicaof", "127.0.0.1 "+master, "--save", "", "--repl-diskless-sync-delay", "0")
	var sentinels []string
	for i := range 3 {
		name, port := fmt.Sprintf("sentinel-%d", i), freePort(t, st)
		config := filepath.Join(st.Dir(), name+".conf")
		text := fmt.Sprintf("port %d\nsentinel monitor devices 127.0.0.1 %s 2\nsentinel down-after-milliseconds devices 500\n"+
			"sentinel failover-timeout devices 3000\n", port, master)
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		run(t, st, name, answers(port), config, "--sentinel")
		sentinels = append(sentinels, fmt.Sprintf("127.0.0.1:%d", port))
	}
	watcher := redis.NewSentinelClient(&redis.Options{Addr: sentinels[0]})
	t.Cleanup(func() { _ = watcher.Close() })
	eventually(t, "the sentinels know each other and the replica", 30*time.Second, func(ctx context.Context) error {
		state, err := watcher.Master(ctx, "devices").Result()
		if err != nil {
			return err
		}
		if state["num-slaves"] != "1" || state["num-other-sentinels"] != "2" {
			return fmt.Errorf("%s replicas, %s other sentinels", state["num-slaves"], state["num-other-sentinels"])
		}
		return nil
	})

	d := directory.New(connect(t, directory.Connection{Kind: directory.KindSentinel, Addresses: sentinels, Master: "devices"}), "sickbay")
	w := newWorld(24)
	observer, worker := w.both(t, d)
	if err := st.KillPart(stack.Redis); err != nil {
		t.Fatal(err)
	}
	w.see(seen(gpu(0, 5), device.Unhealthy))
	w.decide(openCase(gpu(0, 5), 500, quarantine.PhaseQuarantined))
	observer.Changed(gpu(0, 5))
	worker.Changed(gpu(0, 5))
	eventually(t, "the replica is the master", 60*time.Second, func(ctx context.Context) error {
		address, err := watcher.GetMasterAddrByName(ctx, "devices").Result()
		if err != nil {
			return err
		}
		if address[1] != fmt.Sprint(replica) {
			return fmt.Errorf("the master is %v", address)
		}
		return nil
	})
	whole(t, d, w)
}

func TestOnAClusterShardsAreSpreadAndScriptsStayInTheirSlot(t *testing.T) {
	st := stack.Start(t, stack.Options{Redis: true}) // for its folder and ports; the nodes are further ones
	var addresses []string
	var nodes []*redis.Client
	for i := range 3 {
		port := freePort(t, st)
		run(t, st, fmt.Sprintf("node-%d", i), answers(port), "--port", fmt.Sprint(port), "--cluster-enabled", "yes",
			"--cluster-port", fmt.Sprint(freePort(t, st)), "--save", "", "--cluster-node-timeout", "2000")
		address := fmt.Sprintf("127.0.0.1:%d", port)
		client := redis.NewClient(&redis.Options{Addr: address})
		t.Cleanup(func() { _ = client.Close() })
		if err := client.ClusterAddSlotsRange(t.Context(), i*16384/3, (i+1)*16384/3-1).Err(); err != nil {
			t.Fatal(err)
		}
		addresses, nodes = append(addresses, address), append(nodes, client)
	}
	for i := range nodes {
		host, port, _ := strings.Cut(addresses[i], ":")
		bus, err := nodes[i].ConfigGet(t.Context(), "cluster-port").Result()
		if err != nil {
			t.Fatal(err)
		}
		if err := nodes[0].Do(t.Context(), "CLUSTER", "MEET", host, port, bus["cluster-port"]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the cluster is whole", 60*time.Second, func(ctx context.Context) error {
		for _, node := range nodes {
			info, err := node.ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:3") {
				return errors.New(info)
			}
		}
		return nil
	})

	// One address of it is enough to find the others.
	d := directory.New(connect(t, directory.Connection{Kind: directory.KindCluster, Addresses: addresses[:1]}), "sickbay")
	w := newWorld(64)
	observer, worker := w.both(t, d)
	for i, node := range nodes {
		if n, err := node.DBSize(t.Context()).Result(); err != nil || n == 0 {
			t.Errorf("node %d has %d keys, error %v; want a part of the shards", i, n, err)
		}
	}
	from, err := d.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.see(seen(gpu(2, 2), device.Unhealthy))
	observer.Changed(gpu(2, 2))
	w.decide(openCase(gpu(5, 5), 600, quarantine.PhaseSuspect))
	worker.Changed(gpu(5, 5))
	if got, _, err := follow(t, d, from, 2); err != nil || len(got) != 2 {
		t.Errorf("followed %d transitions, error %v", len(got), err)
	}
	whole(t, d, w)
	if got := listed(t, d, directory.Query{Phase: string(quarantine.PhaseSuspect)}); len(got) != 1 {
		t.Errorf("%d suspects, want 1", len(got))
	}
	shard := directory.ShardOf(gpu(2, 2))
	if _, _, err := d.Snapshot(t.Context(), shard, time.Now().Add(time.Minute), 0); err != nil {
		t.Error(err)
	}
	if entries, err := d.Replay(t.Context(), shard); err != nil || entries[gpu(2, 2)].Seen == nil || entries[gpu(2, 2)].Seen.Health != device.Unhealthy {
		t.Errorf("replayed %v, error %v", entries[gpu(2, 2)], err)
	}

	// A node is killed with all that it had, and comes back empty.
	if err := st.KillPart("node-1"); err != nil {
		t.Fatal(err)
	}
	if err := st.StartPart(t.Context(), "node-1"); err != nil {
		t.Fatal(err)
	}
	whole(t, d, w)
}

// authority signs certificates for tests.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	folder      string
}

func newAuthority(t testing.TB, folder string) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := authority{key: key, folder: folder, certificate: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	a.write(t, "ca", a.certificate, a.key)
	return a
}

// sign makes name.crt and name.key.
func (a authority) sign(t testing.TB, name, host string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a.write(t, name, &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, key)
}

func (a authority) write(t testing.TB, name string, certificate *x509.Certificate, key *ecdsa.PrivateKey) {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, certificate, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "EC PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(a.file(name+file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (a authority) file(name string) string { return filepath.Join(a.folder, name) }

func TestOverTLSBothSidesHaveToShowACertificate(t *testing.T) {
	st := stack.Start(t, stack.Options{Redis: true})
	a := newAuthority(t, t.TempDir())
	a.sign(t, "server", "redis.example.com", 2)
	a.sign(t, "client", "sickbay", 3)
	stranger := newAuthority(t, t.TempDir())
	port := freePort(t, st)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	run(t, st, "redis-tls", func(ctx context.Context) error {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return connection.Close()
	}, "--port", "0", "--tls-port", fmt.Sprint(port), "--tls-cert-file", a.file("server.crt"), "--tls-key-file", a.file("server.key"),
		"--tls-ca-cert-file", a.file("ca.crt"), "--tls-auth-clients", "yes", "--save", "")

	good := directory.Connection{
		Kind: directory.KindSingle, Addresses: []string{address}, UseTLS: true, CAFile: a.file("ca.crt"),
		CertFile: a.file("client.crt"), KeyFile: a.file("client.key"), ServerName: "redis.example.com",
	}
	w := newWorld(8)
	w.both(t, directory.New(connect(t, good), "sickbay"))

	for name, change := range map[string]func(*directory.Connection){
		"without TLS":               func(c *directory.Connection) { c.UseTLS = false },
		"another authority":         func(c *directory.Connection) { c.CAFile = stranger.file("ca.crt") },
		"another name":              func(c *directory.Connection) { c.ServerName = "elsewhere.example.com" },
		"no certificate of its own": func(c *directory.Connection) { c.CertFile, c.KeyFile = "", "" },
	} {
		bad := good
		change(&bad)
		if _, err := directory.New(connect(t, bad), "sickbay").Status(t.Context()); err == nil {
			t.Errorf("%s: the server answered", name)
		}
	}
	for name, change := range map[string]func(*directory.Connection){
		"an authority that is none":   func(c *directory.Connection) { c.CAFile = a.file("ca.key") },
		"a certificate without a key": func(c *directory.Connection) { c.KeyFile = a.file("nothing") },
	} {
		bad := good
		change(&bad)
		if _, err := directory.Connect(bad); err == nil {
			t.Errorf("%s: not refused at the start", name)
		}
	}
}

func TestARotatedPasswordIsTakenUpByTheNextConnection(t *testing.T) {
	s := start(t)
	file := filepath.Join(t.TempDir(), "password")
	set := func(password string) {
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		err := s.client.Do(t.Context(), "ACL", "SETUSER", "sickbay", "on", "resetpass", ">"+password, "~*", "+@all").Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	set("first-secret")
	d := directory.New(connect(t, directory.Connection{
		Kind: directory.KindSingle, Addresses: []string{s.stack.RedisAddress()}, Username: "sickbay", PasswordFile: file,
	}), "sickbay")
	w := newWorld(8)
	w.both(t, d)

	set("second-secret")
	if err := s.client.Do(t.Context(), "CLIENT", "KILL", "USER", "sickbay").Err(); err != nil {
		t.Fatal(err)
	}
	whole(t, d, w)

	if err := os.WriteFile(file, []byte("wrong-secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.client.Do(t.Context(), "CLIENT", "KILL", "USER", "sickbay").Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the wrong password is refused", 10*time.Second, func(ctx context.Context) error {
		_, err := d.Status(ctx)
		if err == nil {
			return errors.New("the server still answers")
		}
		if strings.Contains(err.Error(), "secret") {
			t.Fatalf("the error shows the password: %v", err)
		}
		return nil
	})
}
