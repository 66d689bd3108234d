package stack

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// ownClient names the certificate of the stack's own clients.
const ownClient = "stack"

// keyID names the key that signs the keys for Temporal.
const keyID = "stack"

// guard is what a secured Temporal asks of its clients: certificates of an
// authority of its own, and keys that are JSON Web Tokens, as its default claim
// mapper reads them.
type guard struct {
	pki    *pki
	signer *ecdsa.PrivateKey
}

// newGuard makes the authority, the frontend's certificate and the file with the
// key that tokens are checked by.
func newGuard(dir string) (*guard, error) {
	authority, err := newPKI(dir)
	if err != nil {
		return nil, err
	}
	if err := authority.signClient(ownClient, ownClient); err != nil {
		return nil, err
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	g := &guard{pki: authority, signer: signer}
	public, err := signer.PublicKey.Bytes()
	if err != nil {
		return nil, err
	}
	// An uncompressed point: a byte that says so, and two coordinates.
	x, y := public[1:33], public[33:]
	keys, err := json.Marshal(map[string]any{"keys": []map[string]string{{
		"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": keyID, "x": base64url(x), "y": base64url(y),
	}}})
	if err != nil {
		return nil, err
	}
	return g, os.WriteFile(g.jwks(), keys, 0o600)
}

func (g *guard) jwks() string { return g.pki.path("jwks.json") }

func base64url(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// token is a signed JSON Web Token (RFC 7519, ES256).
func (g *guard) token(claims map[string]any) (string, error) {
	header, err := json.Marshal(map[string]string{"alg": "ES256", "typ": "JWT", "kid": keyID})
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	signed := base64url(header) + "." + base64url(body)
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, g.signer, sum[:])
	if err != nil {
		return "", err
	}
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	return signed + "." + base64url(signature), nil
}

// secured tells whether Temporal serves TLS.
func (o Options) secured() bool { return o.TemporalClientCertificates || o.TemporalKeys }

// TemporalCA is the file with the authority that Temporal's certificate comes from.
// Empty: it serves no TLS.
func (s *Stack) TemporalCA() string {
	if s.guard == nil {
		return ""
	}
	return s.guard.pki.path("ca.crt")
}

// TemporalCertificate makes a certificate that Temporal lets in, under a name, and
// returns the files with it and with its private key.
func (s *Stack) TemporalCertificate(name string) (certFile, keyFile string, err error) {
	if s.guard == nil {
		return "", "", errors.New("this stack's Temporal asks for no certificate")
	}
	return s.guard.pki.path(name + ".crt"), s.guard.pki.path(name + ".key"), s.guard.pki.signClient(name, name)
}

// TemporalKey makes an API key that is good for a while, or since a while no more.
// Permissions are what Temporal's default authorizer knows, "namespace:read",
// "namespace:write" or "namespace:admin"; the namespace temporal-system is all.
func (s *Stack) TemporalKey(subject string, good time.Duration, permissions ...string) (string, error) {
	if s.guard == nil {
		return "", errors.New("this stack's Temporal asks for no key")
	}
	return s.guard.token(map[string]any{"sub": subject, "permissions": permissions, "exp": time.Now().Add(good).Unix()})
}

// temporalSecurity are the server's flags, once what they name is there.
func (s *Stack) temporalSecurity() ([]string, error) {
	if !s.opts.secured() {
		return nil, nil
	}
	var err error
	if s.guard, err = newGuard(filepath.Join(s.Dir(), "temporal-pki")); err != nil {
		return nil, fmt.Errorf("secure Temporal: %w", err)
	}
	args := []string{"-tls-cert=" + s.guard.pki.path("serving.crt"), "-tls-key=" + s.guard.pki.path("serving.key")}
	if s.opts.TemporalClientCertificates {
		args = append(args, "-tls-client-ca="+s.TemporalCA())
	}
	if s.opts.TemporalKeys {
		args = append(args, "-jwks="+s.guard.jwks())
	}
	return args, nil
}

// TemporalTLS is how the stack's own clients secure their connection; nil without
// TLS.
func (s *Stack) TemporalTLS() (*tls.Config, error) {
	if s.guard == nil {
		return nil, nil
	}
	authority := x509.NewCertPool()
	authority.AddCert(s.guard.pki.cert)
	pair, err := tls.LoadX509KeyPair(s.guard.pki.path(ownClient+".crt"), s.guard.pki.path(ownClient+".key"))
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authority, Certificates: []tls.Certificate{pair}}, nil
}
