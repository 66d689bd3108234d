package stack

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// probeLimit bounds one readiness question, so that a single hung connection
// does not use up the whole start.
const probeLimit = 2 * time.Second

// Answers is a Process.Ready for what serves HTTP: it wants status 200 of a URL.
func Answers(url string) func(ctx context.Context) error { return httpReady(url, "", "") }

// httpReady asks a URL for status 200. The certificate authority and token are
// optional.
func httpReady(url, caFile, token string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, probeLimit)
		defer cancel()
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		if caFile != "" {
			pem, err := os.ReadFile(caFile)
			if err != nil {
				return err
			}
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(pem)
			client.Transport = &http.Transport{
				DisableKeepAlives: true,
				TLSClientConfig:   &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
			}
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			body, _ := io.ReadAll(io.LimitReader(response.Body, 2000))
			return fmt.Errorf("%s: %s: %s", url, response.Status, body)
		}
		return nil
	}
}
