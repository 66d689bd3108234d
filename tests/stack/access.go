package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// tokenLifetime of a ServiceAccount token, in seconds: longer than any test.
const tokenLifetime = int64(24 * 60 * 60)

// KubernetesVersion is what runs, for example "1.36.3"; empty without one.
func (s *Stack) KubernetesVersion() string { return s.release.version }

// APIServerURL is the API server's address. It stays over a restart.
func (s *Stack) APIServerURL() string { return "https://" + loopback(s.ports.port(portAPIServer)) }

// CAFile is the certificate of the authority that the API server's certificate
// and client certificates are signed by.
func (s *Stack) CAFile() string { return s.pki.path("ca.crt") }

// AuditLog is the API server's audit log: one JSON event of audit.k8s.io/v1 per
// line and call, at the Metadata level, without those of SimulatorUser.
func (s *Stack) AuditLog() string { return filepath.Join(s.Dir(), "log", "audit.log") }

// Kubeconfig is the path of a cluster admin's kubeconfig.
func (s *Stack) Kubeconfig() string { return s.kubeconfigPath("admin") }

// RESTConfig is a cluster admin's client configuration, without client-side
// rate limits: a test asserts what the server did, not how a client queued.
func (s *Stack) RESTConfig() *rest.Config { return s.tokenConfig("admin") }

// SimulatorConfig is SimulatorUser's client configuration.
func (s *Stack) SimulatorConfig() *rest.Config { return s.tokenConfig(SimulatorUser) }

// UserConfig is the client configuration of a user with groups and with no
// rights but those that RBAC gives them. A node's kubelet is user
// "system:node:<name>" in group "system:nodes".
func (s *Stack) UserConfig(user string, groups ...string) (*rest.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.Join(append([]string{user}, groups...), "\x00")
	name := s.users[key]
	if name == "" {
		name = fmt.Sprintf("user-%d", len(s.users))
		if err := s.pki.signClient(name, user, groups...); err != nil {
			return nil, err
		}
		s.users[key] = name
	}
	config := s.anonymousConfig()
	config.CertFile, config.KeyFile = s.pki.path(name+".crt"), s.pki.path(name+".key")
	return config, nil
}

// UserKubeconfig is the path of a kubeconfig of UserConfig.
func (s *Stack) UserKubeconfig(user string, groups ...string) (string, error) {
	config, err := s.UserConfig(user, groups...)
	if err != nil {
		return "", err
	}
	path := s.kubeconfigPath(user)
	return path, writeKubeconfig(path, config)
}

// ServiceAccountConfig is the client configuration of a ServiceAccount, which
// must exist, with a token asked from the API server.
func (s *Stack) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		return nil, err
	}
	lifetime := tokenLifetime
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &lifetime},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("get a token for ServiceAccount %s/%s: %w", namespace, name, err)
	}
	config := s.anonymousConfig()
	config.BearerToken = token.Status.Token
	return config, nil
}

// ServiceAccountKubeconfig is the path of a kubeconfig of ServiceAccountConfig.
func (s *Stack) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	config, err := s.ServiceAccountConfig(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	path := s.kubeconfigPath("serviceaccount-" + namespace + "-" + name)
	return path, writeKubeconfig(path, config)
}

func (s *Stack) anonymousConfig() *rest.Config {
	return &rest.Config{
		Host:            s.APIServerURL(),
		TLSClientConfig: rest.TLSClientConfig{CAFile: s.CAFile()},
		QPS:             -1,
	}
}

func (s *Stack) tokenConfig(user string) *rest.Config {
	config := s.anonymousConfig()
	config.BearerToken = s.tokens[user]
	return config
}

func (s *Stack) kubeconfigPath(user string) string {
	return filepath.Join(s.Dir(), strings.NewReplacer(":", "-", "/", "-").Replace(user)+".kubeconfig")
}

// writeKubeconfig writes a configuration as a kubeconfig file with one context.
func writeKubeconfig(path string, config *rest.Config) error {
	const name = "stack"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthority: config.CAFile}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{
		Token: config.BearerToken, ClientCertificate: config.CertFile, ClientKey: config.KeyFile,
	}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kubeconfig.CurrentContext = name
	content, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		return fmt.Errorf("write the kubeconfig %s: %w", path, err)
	}
	// Several may write the same one at once, and others read it meanwhile: each
	// finds it whole.
	whole, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("write the kubeconfig %s: %w", path, err)
	}
	_, err = whole.Write(content)
	if err = errors.Join(err, whole.Close()); err == nil {
		err = os.Rename(whole.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the kubeconfig %s: %w", path, err), os.Remove(whole.Name()))
	}
	return nil
}
