package stack

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// pki is the certificate authority of one stack and the files it signed.
type pki struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// validity of everything signed; a stack on a kept directory may be old.
const validity = 10 * 365 * 24 * time.Hour

// newPKI makes the authority, the serving certificate of the control plane, the
// API server's client certificate for kubelets, and the key that signs
// ServiceAccount tokens; or loads the authority of an earlier stack in dir.
func newPKI(dir string) (*pki, error) {
	p := &pki{dir: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	loaded, err := p.load()
	if err != nil || loaded {
		return p, err
	}
	if err := p.newAuthority(); err != nil {
		return nil, fmt.Errorf("make the certificate authority: %w", err)
	}
	if err := p.sign("serving", x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}); err != nil {
		return nil, err
	}
	if err := p.signClient("kubelet-client", "kube-apiserver-kubelet-client", "system:masters"); err != nil {
		return nil, err
	}
	return p, p.newTokenKey()
}

func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

func (p *pki) load() (bool, error) {
	certPEM, err := os.ReadFile(p.path("ca.crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	keyPEM, err := os.ReadFile(p.path("ca.key"))
	if err != nil {
		return false, err
	}
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return false, fmt.Errorf("the certificate authority in %s can't be read: remove the folder", p.dir)
	}
	if p.cert, err = x509.ParseCertificate(certBlock.Bytes); err != nil {
		return false, err
	}
	p.key, err = x509.ParseECPrivateKey(keyBlock.Bytes)
	return err == nil, err
}

func (p *pki) newAuthority() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := newTemplate(x509.Certificate{
		Subject:               pkix.Name{CommonName: "sickbay-stack"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	})
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	if p.cert, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	p.key = key
	// The key first: load goes by the certificate.
	if err := p.writeKey("ca.key", key); err != nil {
		return err
	}
	return p.writePEM("ca.crt", "CERTIFICATE", der)
}

// signClient issues a client certificate; the API server takes the common name
// for the user and the organisations for its groups.
func (p *pki) signClient(name, user string, groups ...string) error {
	return p.sign(name, x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// sign writes <name>.crt and <name>.key.
func (p *pki) sign(name string, cert x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("sign the certificate %s: %w", name, err)
	}
	cert.KeyUsage = x509.KeyUsageDigitalSignature
	template := newTemplate(cert)
	der, err := x509.CreateCertificate(rand.Reader, &template, p.cert, &key.PublicKey, p.key)
	if err != nil {
		return fmt.Errorf("sign the certificate %s: %w", name, err)
	}
	if err := p.writeKey(name+".key", key); err != nil {
		return err
	}
	return p.writePEM(name+".crt", "CERTIFICATE", der)
}

// newTokenKey makes the pair that signs and checks ServiceAccount tokens.
func (p *pki) newTokenKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	if err := p.writeKey("sa.key", key); err != nil {
		return err
	}
	return p.writePEM("sa.pub", "PUBLIC KEY", public)
}

func newTemplate(cert x509.Certificate) x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // crypto/rand does not fail on Linux
	}
	cert.SerialNumber = serial
	// A clock that is set back a little must not make the stack unusable.
	cert.NotBefore = time.Now().Add(-time.Hour)
	cert.NotAfter = time.Now().Add(validity)
	return cert
}

func (p *pki) writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return p.writePEM(name, "EC PRIVATE KEY", der)
}

func (p *pki) writePEM(name, kind string, der []byte) error {
	return os.WriteFile(p.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// newToken is a bearer token for the static token file.
func newToken() string {
	var token [16]byte
	if _, err := rand.Read(token[:]); err != nil {
		panic(err) // crypto/rand does not fail on Linux
	}
	return hex.EncodeToString(token[:])
}
