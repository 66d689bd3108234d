package setup

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sickbay-dev/sickbay/tests/pages"
	"github.com/sickbay-dev/sickbay/tests/stack"
)

var update = flag.Bool("update", false, "write what the commands of docs/temporal.md say into it")

// secured is a Temporal in PostgreSQL that wants a client's certificate and a key.
type secured struct {
	*site
	// cert, certKey and apiKey are the files that the settings name.
	cert, certKey, apiKey string
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	s := &secured{site: newSite(t, stack.Options{
		TemporalPostgreSQL: true, TemporalClientCertificates: true, TemporalKeys: true,
		// Has Temporal note whom it let through.
		DynamicConfig: map[string]any{"frontend.enablePrincipalPropagation": true},
	})}
	s.present("sickbay")
	s.apiKey = s.file("api-key", s.key(time.Hour, "sickbay:admin"))
	s.env = append(s.env,
		"SICKBAY_TEMPORAL_TLS_CA_FILE="+s.stack.TemporalCA(),
		"SICKBAY_TEMPORAL_TLS_CERT_FILE="+s.cert, "SICKBAY_TEMPORAL_TLS_KEY_FILE="+s.certKey,
		"SICKBAY_TEMPORAL_API_KEY_FILE="+s.apiKey)
	return s
}

// present puts a certificate that Temporal lets in into the files.
func (s *secured) present(name string) {
	s.t.Helper()
	cert, key, err := s.stack.TemporalCertificate(name)
	if err != nil {
		s.t.Fatal(err)
	}
	s.cert, s.certKey = s.file("client.crt", s.read(cert)), s.file("client.key", s.read(key))
}

// strange are a certificate and its key that no authority which Temporal knows gave
// out.
func (s *secured) strange() (cert, key string) {
	s.t.Helper()
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sickbay"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &pair.PublicKey, pair)
	if err != nil {
		s.t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(pair)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
}

func (s *secured) read(path string) string {
	s.t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(content)
}

// Whoever follows the page from its beginning, on a Temporal in PostgreSQL that wants
// a certificate and a key, gets what it shows. After that starter and worker need no
// more than the right to write; and whatever is wrong with a file is said by whoever
// meets it, with the file's name and what to do. Proves R6: who may only read can't
// release a device; who may write can, and whom Temporal let through is on record apart
// from the name that the message carries.
func TestASecuredTemporal(t *testing.T) {
	s := newSecured(t)
	t.Run("the page", func(t *testing.T) {
		pages.Run(t, pages.Page{
			Path: "docs/temporal.md", Env: append(pages.Terminal(t, s.binary), s.env...), Update: *update,
			Before: func(command string) {
				// By then the page has told what starter and workers get.
				if strings.HasSuffix(command, "--retention 90d") {
					s.file("api-key", s.key(time.Hour, "sickbay:write"))
				}
			},
		})
	})
	t.Run("a case runs by the right to write", func(t *testing.T) {
		writer := s.key(time.Hour, "sickbay:write")
		s.file("api-key", writer)
		s.service("worker", "worker", "/healthz")
		s.openCase(s.dial("sickbay", writer))
		s.sickbay(nil, "audit").wants(t, 0, "CaseOpened")
	})
	t.Run("who may only read can't speak to a case, and who may write is on record", s.speaking)
	t.Run("who may only write or read is told what setup needs", func(t *testing.T) {
		for _, right := range []string{"write", "read"} {
			s.file("api-key", s.key(time.Hour, "sickbay:"+right))
			a := s.sickbay(nil, "setup", "temporal", "--retention", "60d")
			a.wants(t, 1, "did not keep closed workflows of namespace sickbay for 60d", "the caller lacks the right admin in that namespace",
				s.apiKey, "docs/temporal.md", "in Temporal Cloud: tcld namespace")
			s.sickbay(nil, "setup", "temporal").wants(t, 0, "nothing to do")
			s.sickbay([]string{"SICKBAY_TEMPORAL_NAMESPACE=another"}, "setup", "temporal").wants(t, 1, "the caller lacks the right read in that namespace")
		}
	})
	t.Run("a wrong file is named with its remedy", s.wrongFiles)
	t.Run("files that are replaced are read anew", s.replacedFiles)
}

func (s *secured) wrongFiles(t *testing.T) {
	strangeCert, strangeKey := s.strange()
	cert, key := s.file("strange.crt", strangeCert), s.file("strange.key", strangeKey)
	s.file("api-key", s.key(time.Hour, "sickbay:admin"))
	for what, wrong := range map[string]struct {
		env  []string
		said []string
		// inTheEnd is what whoever tries again hears.
		inTheEnd string
	}{
		"no certificate": {
			[]string{"SICKBAY_TEMPORAL_TLS_CERT_FILE=", "SICKBAY_TEMPORAL_TLS_KEY_FILE="},
			[]string{"SICKBAY_TEMPORAL_TLS_CERT_FILE"},
			"Temporal wants a client's certificate: set SICKBAY_TEMPORAL_TLS_CERT_FILE and SICKBAY_TEMPORAL_TLS_KEY_FILE",
		},
		"a certificate of a strange authority": {
			[]string{"SICKBAY_TEMPORAL_TLS_CERT_FILE=" + cert, "SICKBAY_TEMPORAL_TLS_KEY_FILE=" + key},
			[]string{"SICKBAY_TEMPORAL_TLS_CERT_FILE=\"" + cert + "\""}, "Temporal doesn't know the authority of this process's certificate",
		},
		"a certificate with another's key": {
			[]string{"SICKBAY_TEMPORAL_TLS_KEY_FILE=" + key},
			[]string{"SICKBAY_TEMPORAL_TLS_KEY_FILE=\"" + key + "\"", "private key does not match public key"}, "",
		},
		"Temporal's authority isn't known": {
			[]string{"SICKBAY_TEMPORAL_TLS_CA_FILE=" + cert},
			[]string{"of an authority that isn't in SICKBAY_TEMPORAL_TLS_CA_FILE=\"" + cert + "\""}, "",
		},
		"another name": {
			[]string{"SICKBAY_TEMPORAL_TLS_SERVER_NAME=temporal.example.com"},
			[]string{"Temporal's certificate is for another name: want that name in SICKBAY_TEMPORAL_TLS_SERVER_NAME"}, "",
		},
		"no TLS at all": {
			[]string{"SICKBAY_TEMPORAL_TLS_CERT_FILE=", "SICKBAY_TEMPORAL_TLS_KEY_FILE=", "SICKBAY_TEMPORAL_TLS_CA_FILE=", "SICKBAY_TEMPORAL_API_KEY_FILE="},
			[]string{"Temporal may want TLS: set SICKBAY_TEMPORAL_TLS_CA_FILE"}, "",
		},
		"no key": {
			[]string{"SICKBAY_TEMPORAL_API_KEY_FILE="},
			[]string{"no API key is sent: if Temporal wants one, set SICKBAY_TEMPORAL_API_KEY_FILE"}, "",
		},
		"a wrong key": {
			[]string{"SICKBAY_TEMPORAL_API_KEY_FILE=" + s.file("wrong-key", "not.a.key")},
			[]string{"wrong-key\" is wrong, or lacks a right in namespace sickbay"}, "",
		},
		"an expired key": {
			[]string{"SICKBAY_TEMPORAL_API_KEY_FILE=" + s.file("old-key", s.key(-time.Hour, "sickbay:admin"))},
			[]string{"old-key\" expired at ", ": put a new one into the file"}, "",
		},
		"an empty key": {
			[]string{"SICKBAY_TEMPORAL_API_KEY_FILE=" + s.file("empty-key", "\n")},
			[]string{"empty-key\" is empty"}, "",
		},
	} {
		t.Run(what, func(t *testing.T) {
			for _, command := range [][]string{{"audit"}, {"setup", "temporal", "--timeout", "20s"}} {
				began := time.Now()
				a := s.sickbay(wrong.env, command...)
				if a.code == 0 {
					t.Errorf("%v succeeds", command)
				}
				if took := time.Since(began); command[0] == "setup" && took > 15*time.Second {
					t.Errorf("%v waited %s for what waiting doesn't mend", command, took)
				}
				if command[0] == "setup" {
					wrong.said = append(wrong.said, wrong.inTheEnd)
				}
				for _, want := range wrong.said {
					if !strings.Contains(a.out+a.err, want) {
						t.Errorf("%v doesn't say %q, but\n%s%s", command, want, a.out, a.err)
					}
				}
			}
		})
	}
}

// replacedFiles lets a starter and a worker run while their files go wrong and come
// right again.
func (s *secured) replacedFiles(t *testing.T) {
	good := s.key(time.Hour, "sickbay:write")
	s.file("api-key", good)
	strangeCert, strangeKey := s.strange()
	s.file("client.crt", strangeCert)
	s.file("client.key", strangeKey)
	s.service("second-worker", "worker", "/healthz")
	starter := s.service("starter", "starter", "/healthz")
	ready := func(want string) {
		t.Helper()
		s.eventually("the starter says "+want, func(ctx context.Context) error {
			said, err := probe(ctx, "http://"+starter+"/readyz")
			if err == nil && !strings.Contains(said, want) {
				err = fmt.Errorf("it says\n%s", said)
			}
			return err
		})
	}
	remedy := "SICKBAY_TEMPORAL_TLS_CERT_FILE=\"" + s.cert + "\""
	ready(remedy)
	s.eventually("the worker says what is wrong", func(context.Context) error {
		if said := s.log("second-worker"); !strings.Contains(said, strings.ReplaceAll(remedy, `"`, `\"`)) {
			return fmt.Errorf("it says\n%s", said)
		}
		return nil
	})
	s.present("sickbay")
	ready("temporal: ok\n")
	s.eventually("the worker goes on with the new certificate", func(context.Context) error {
		if said := s.log("second-worker"); !strings.Contains(said, `"msg":"worker runs"`) {
			return fmt.Errorf("it says\n%s", said)
		}
		return nil
	})
	s.file("api-key", s.key(-time.Minute, "sickbay:write"))
	ready("expired at ")
	s.file("api-key", s.key(time.Hour, "sickbay:write"))
	ready("temporal: ok\n")
}

// probe is what a page of a service says, whatever its status is.
func probe(ctx context.Context, url string) (string, error) {
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
