package cmd

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sickbay-dev/sickbay/pkg/config"
)

// What Temporal, or the connection to it, answers to wrong files is a word of the
// TLS library or "Request unauthorized.". Whoever set the files up needs to hear
// which file it is about and what to do with it; so each answer carries that.

// remedies is an interceptor that adds to a refusal what can be done about it.
func remedies(set config.Temporal) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		err := invoke(ctx, method, request, reply, connection, options...)
		if err == nil {
			return nil
		}
		answer := status.Convert(err)
		remedy := remedyFor(set, answer.Code(), answer.Message())
		if remedy == "" {
			return err
		}
		// The code and the details stay: callers go by them.
		told := answer.Proto()
		told.Message = strings.TrimSuffix(told.GetMessage(), ".") + "; " + remedy
		return status.ErrorProto(told)
	}
}

// perhaps begins a remedy for what may as well pass by itself.
const perhaps = "if this goes on, "

// remediable tells whether an error is one that has a remedy: trying again before
// somebody did something won't help.
func remediable(err error) bool {
	return strings.Contains(err.Error(), "SICKBAY_TEMPORAL_") && !strings.Contains(err.Error(), perhaps)
}

func remedyFor(set config.Temporal, code codes.Code, message string) string {
	switch code {
	case codes.Unavailable:
		return tlsRemedy(set, message)
	case codes.PermissionDenied, codes.Unauthenticated:
		return keyRemedy(set)
	}
	return ""
}

// tlsRemedy goes by what crypto/tls and crypto/x509 say, on either side.
func tlsRemedy(set config.Temporal, message string) string {
	says := func(words ...string) bool {
		for _, word := range words {
			if strings.Contains(message, word) {
				return true
			}
		}
		return false
	}
	mine := func() string {
		return fmt.Sprintf("SICKBAY_TEMPORAL_TLS_CERT_FILE=%q", set.TLS.CertFile)
	}
	switch {
	case says("no children to pick from", "name resolver error"):
		return "the host of SICKBAY_TEMPORAL_ADDRESS=" + set.Address + " can't be found: see that the name is right, and that DNS answers here"
	case says("remote error: tls: certificate required"), says("remote error: tls: bad certificate") && set.TLS.CertFile == "":
		return "Temporal wants a client's certificate: set SICKBAY_TEMPORAL_TLS_CERT_FILE and SICKBAY_TEMPORAL_TLS_KEY_FILE"
	case says("remote error: tls: unknown certificate authority"):
		return "Temporal doesn't know the authority of this process's certificate: want one in " + mine() + " from an authority that the frontend trusts"
	case says("remote error: tls: expired certificate"):
		return "this process's certificate isn't valid any more: renew " + mine()
	case says("remote error: tls: bad certificate", "remote error: tls: certificate unknown"):
		return "Temporal refuses this process's certificate, which may be of another authority or no longer valid: see " + mine()
	case says("certificate signed by unknown authority"):
		return fmt.Sprintf("Temporal's certificate is of an authority that isn't in SICKBAY_TEMPORAL_TLS_CA_FILE=%q: put that authority's certificate there", set.TLS.CAFile)
	case says("x509: certificate has expired"):
		return "Temporal's certificate isn't valid now: whoever runs Temporal at SICKBAY_TEMPORAL_ADDRESS=" + set.Address + " has to renew it, or this machine's clock is wrong"
	case says("x509: certificate is valid for", "x509: cannot validate certificate for", "x509: certificate is not valid for any names"):
		return fmt.Sprintf("Temporal's certificate is for another name: want that name in SICKBAY_TEMPORAL_TLS_SERVER_NAME=%q", set.TLS.ServerName)
	case says("first record does not look like a TLS handshake"):
		return "Temporal at SICKBAY_TEMPORAL_ADDRESS=" + set.Address + " doesn't speak TLS: unset the SICKBAY_TEMPORAL_TLS_ variables and SICKBAY_TEMPORAL_API_KEY_FILE, or name the port that does"
	case says("broken pipe", "connection reset by peer", "error reading server preface: EOF") && set.Wanted():
		// TLS 1.3 tells a client that its certificate is refused when it may have
		// begun to talk; it then hears of a closed connection, or why, by chance.
		return perhaps + "Temporal takes no certificate that this process shows: see " + mine()
	case says("error reading server preface") && !set.Wanted():
		return "Temporal may want TLS: set SICKBAY_TEMPORAL_TLS_CA_FILE, or SICKBAY_TEMPORAL_TLS_ENABLED=true for the system's authorities"
	}
	return ""
}

// keyRemedy is for a caller that Temporal doesn't let do what it asks for.
func keyRemedy(set config.Temporal) string {
	if set.APIKeyFile == "" {
		return "no API key is sent: if Temporal wants one, set SICKBAY_TEMPORAL_API_KEY_FILE; if it goes by certificates, see docs/temporal.md for the rights that are needed"
	}
	named := fmt.Sprintf("the API key in SICKBAY_TEMPORAL_API_KEY_FILE=%q", set.APIKeyFile)
	if key, err := readSecret(set.APIKeyFile); err == nil {
		if end, ok := expiry(key); ok && end.Before(time.Now()) {
			return named + " expired at " + end.UTC().Format(time.RFC3339) + ": put a new one into the file"
		}
	}
	return fmt.Sprintf("%s is wrong, or lacks a right in namespace %s (docs/temporal.md lists those that are needed): put one that has it into the file", named, set.Namespace)
}

// expiry is when a key says that it ends, if it is a JSON Web Token that does.
func expiry(key string) (time.Time, bool) {
	parts := strings.Split(key, ".")
	if len(parts) != 3 {
		return time.Time{}, false
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}, false
	}
	var claims struct {
		End float64 `json:"exp"`
	}
	if json.Unmarshal(body, &claims) != nil || claims.End == 0 {
		return time.Time{}, false
	}
	return time.Unix(int64(claims.End), 0), true
}
