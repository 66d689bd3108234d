package directory

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Kind is how the Redis service is set up.
type Kind string

const (
	KindSingle   Kind = "single"
	KindSentinel Kind = "sentinel"
	KindCluster  Kind = "cluster"
)

// Connection says how to reach Redis.
type Connection struct {
	Kind Kind
	// Addresses are the server's, the sentinels', or some of the cluster's nodes'.
	Addresses []string
	// Master is the name by which the sentinels know the master.
	Master   string
	Username string
	// PasswordFile is read for each new connection, so that a rotated password
	// needs no restart.
	PasswordFile string
	// SentinelUsername and SentinelPasswordFile are for the sentinels themselves;
	// the file is read once.
	SentinelUsername     string
	SentinelPasswordFile string
	Database             int
	// TLS is used where UseTLS is set. The files are PEM; CertFile and KeyFile are
	// read for each new connection.
	UseTLS                                bool
	CAFile, CertFile, KeyFile, ServerName string
	// Timeout bounds one connecting, one reading and one writing.
	Timeout time.Duration
	// Name is what the server calls this connection in CLIENT LIST.
	Name string
}

// Connect sets a client up. It connects when it is first used; an error is one of
// the configuration.
func Connect(c Connection) (redis.UniversalClient, error) {
	options := &redis.UniversalOptions{
		Addrs: c.Addresses, ClientName: c.Name, DB: c.Database, MasterName: c.Master,
		IsClusterMode: c.Kind == KindCluster,
		// A caller's deadline counts, and nothing waits long for a server that is away.
		ContextTimeoutEnabled: true,
		DialTimeout:           c.Timeout, ReadTimeout: c.Timeout, WriteTimeout: c.Timeout, PoolTimeout: c.Timeout,
		DialerRetries: 1, MaxRetries: 2,
		// Requests of other servers and versions that a 7.0 doesn't know.
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if c.Kind != KindSentinel {
		options.MasterName = ""
	}
	if c.Username != "" || c.PasswordFile != "" {
		options.CredentialsProviderContext = func(context.Context) (string, string, error) {
			password, err := readPassword(c.PasswordFile)
			return c.Username, password, err
		}
	}
	if c.SentinelUsername != "" || c.SentinelPasswordFile != "" {
		password, err := readPassword(c.SentinelPasswordFile)
		if err != nil {
			return nil, err
		}
		options.SentinelUsername, options.SentinelPassword = c.SentinelUsername, password
	}
	if c.UseTLS {
		secured, err := c.secure()
		if err != nil {
			return nil, err
		}
		options.TLSConfig = secured
	}
	return redis.NewUniversalClient(options), nil
}

// readPassword reads a password. What the file holds is in no error.
func readPassword(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the password for Redis: %w", err)
	}
	password := strings.TrimSpace(string(content))
	if password == "" {
		return "", errors.New("read the password for Redis: " + path + " is empty")
	}
	return password, nil
}

func (c Connection) secure() (*tls.Config, error) {
	secured := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
	if c.CAFile != "" {
		authorities, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the authorities for Redis: %w", err)
		}
		secured.RootCAs = x509.NewCertPool()
		if !secured.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("read the authorities for Redis: no certificate in %s; want PEM", c.CAFile)
		}
	}
	if c.CertFile != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("read the certificate for Redis: %w", err)
			}
			return &pair, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		secured.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return secured, nil
}
