package cmd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"google.golang.org/grpc"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/sickbay-dev/sickbay/pkg/config"
	"github.com/sickbay-dev/sickbay/pkg/telemetry"
)

// cluster is the way to Kubernetes.
type cluster struct {
	typed   kubernetes.Interface
	untyped dynamic.Interface
	// namespace is the kubeconfig's, or the Pod's own.
	namespace string
}

// connectKubernetes makes the clients of a cluster. It doesn't talk to the
// cluster: a service has to start while that is away. watched counts the calls; nil
// is nobody.
func connectKubernetes(set config.Kubernetes, agent string, watched *telemetry.KubernetesCalls) (cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if set.Kubeconfig != "" {
		rules.ExplicitPath = set.Kubeconfig
	}
	if err := kubeconfigsThere(rules, os.Getenv(clientcmd.RecommendedConfigPathEnvVar)); err != nil {
		return cluster{}, &configurationError{err}
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: set.KubeContext})
	settings, err := loader.ClientConfig()
	if err != nil {
		return cluster{}, &configurationError{fmt.Errorf("no way to a cluster: %w; set SICKBAY_KUBECONFIG or KUBECONFIG, or run in a Pod", err)}
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return cluster{}, &configurationError{fmt.Errorf("read the namespace of the kubeconfig: %w", err)}
	}
	// One limiter for both clients, which would have one each.
	settings.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(float32(set.KubeQPS), set.KubeBurst)
	settings.Wrap(watched.Wrap)
	settings.UserAgent = agent + "/" + buildOf().Version
	typed, err := kubernetes.NewForConfig(settings)
	if err != nil {
		return cluster{}, &configurationError{fmt.Errorf("set up the client for %s: %w", settings.Host, err)}
	}
	untyped, err := dynamic.NewForConfig(settings)
	if err != nil {
		return cluster{}, &configurationError{fmt.Errorf("set up the client for %s: %w", settings.Host, err)}
	}
	return cluster{typed: typed, untyped: untyped, namespace: namespace}, nil
}

// kubeconfigsThere refuses a KUBECONFIG of which no file exists. client-go passes
// over missing files, and would go on to another cluster than was named.
func kubeconfigsThere(rules *clientcmd.ClientConfigLoadingRules, named string) error {
	if rules.ExplicitPath != "" || named == "" {
		return nil
	}
	for _, path := range filepath.SplitList(named) {
		if _, err := os.Stat(path); err == nil || !errors.Is(err, os.ErrNotExist) {
			return nil
		}
	}
	return fmt.Errorf("KUBECONFIG=%q: no such file; name one that exists, or unset it", named)
}

// configurationError marks an error as one of the configuration.
type configurationError struct{ error }

func (e *configurationError) Unwrap() []error { return []error{e.error, config.ErrConfig} }

// connectTemporal makes a client that connects when it is first used, so that a
// service can start while Temporal is away. counts takes the SDK's metrics; nil is
// nobody.
func connectTemporal(set config.Temporal, identity string, logger *slog.Logger, counts client.MetricsHandler) (client.Client, error) {
	options := client.Options{
		HostPort:       set.Address,
		Namespace:      set.Namespace,
		Identity:       identity,
		Logger:         log.NewStructuredLogger(logger.With("component", "temporal")),
		MetricsHandler: counts,
	}
	if set.Wanted() {
		secured, err := secure(set.TLS)
		if err != nil {
			return nil, &configurationError{err}
		}
		options.ConnectionOptions.TLS = secured
	}
	if set.APIKeyFile != "" {
		options.Credentials = client.NewAPIKeyDynamicCredentials(func(context.Context) (string, error) {
			return readSecret(set.APIKeyFile)
		})
	}
	options.ConnectionOptions.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(remedies(set))}
	connection, err := client.NewLazyClient(options)
	if err != nil {
		return nil, &configurationError{fmt.Errorf("set up the connection to Temporal at %s: %w", set.Address, err)}
	}
	return connection, nil
}

// secure sets up TLS. The certificate is read anew for each handshake, so that a
// rotated one is taken up by the next connection.
func secure(set config.TLS) (*tls.Config, error) {
	secured := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: set.ServerName}
	if set.CAFile != "" {
		authorities, err := os.ReadFile(set.CAFile)
		if err != nil {
			return nil, fmt.Errorf("SICKBAY_TEMPORAL_TLS_CA_FILE: %w", err)
		}
		secured.RootCAs = x509.NewCertPool()
		if !secured.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("SICKBAY_TEMPORAL_TLS_CA_FILE=%q: no certificate in it; want PEM", set.CAFile)
		}
	}
	if set.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(set.CertFile, set.KeyFile); err != nil {
			return nil, fmt.Errorf("SICKBAY_TEMPORAL_TLS_CERT_FILE=%q with SICKBAY_TEMPORAL_TLS_KEY_FILE=%q: %w", set.CertFile, set.KeyFile, err)
		}
		secured.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(set.CertFile, set.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("read the certificate for Temporal: %w", err)
			}
			return &pair, nil
		}
	}
	return secured, nil
}

func readSecret(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the API key for Temporal, SICKBAY_TEMPORAL_API_KEY_FILE: %w", err)
	}
	secret := strings.TrimSpace(string(content))
	if secret == "" {
		return "", fmt.Errorf("read the API key for Temporal: SICKBAY_TEMPORAL_API_KEY_FILE=%q is empty", path)
	}
	for _, b := range []byte(secret) {
		if b <= ' ' || b > '~' {
			return "", fmt.Errorf("read the API key for Temporal: SICKBAY_TEMPORAL_API_KEY_FILE=%q has more in it than one line of visible ASCII: want the key alone", path)
		}
	}
	return secret, nil
}

// identity names this process to Temporal and to other replicas.
func identity(service string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("sickbay-%s@%s/%d", service, host, os.Getpid())
}
