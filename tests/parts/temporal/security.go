// Who may talk to the frontend: the server's settings for TLS and its default
// authorizer.

package main

import (
	"fmt"

	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/primitives"
)

// security is what the frontend asks of its clients. The zero value asks nothing.
type security struct {
	certFile, keyFile string
	// clientCAFile makes every client show a certificate of these authorities.
	clientCAFile string
	// jwks makes every client send a token that these keys signed, and lets it do
	// what the token's permissions say.
	jwks string
}

func (s security) on() bool { return s.certFile != "" || s.jwks != "" }

// apply writes the settings into a configuration. The server's own workers then go
// through a frontend of their own, as its documentation has it: they have no token
// and no certificate.
func (s security) apply(conf *config.Config, internalPort int) {
	if !s.on() {
		return
	}
	if s.certFile != "" {
		conf.Global.TLS.Frontend.Server = config.ServerTLS{CertFile: s.certFile, KeyFile: s.keyFile}
	}
	if s.clientCAFile != "" {
		conf.Global.TLS.Frontend.Server.RequireClientAuth = true
		conf.Global.TLS.Frontend.Server.ClientCAFiles = []string{s.clientCAFile}
	}
	if s.jwks != "" {
		conf.Global.Authorization = config.Authorization{
			JWTKeyProvider: config.JWTKeyProvider{KeySourceURIs: []string{"file://" + s.jwks}},
			Authorizer:     "default",
			ClaimMapper:    "default",
		}
	}
	conf.Services[string(primitives.InternalFrontendService)] = service(internalPort, 0)
	conf.PublicClient = config.PublicClient{}
	// The cluster's own address, which clients of other clusters would use.
	for name, cluster := range conf.ClusterMetadata.ClusterInformation {
		cluster.RPCAddress = fmt.Sprintf("%s:%d", loopback, internalPort)
		conf.ClusterMetadata.ClusterInformation[name] = cluster
	}
}
