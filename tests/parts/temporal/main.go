// Command temporal-server runs a whole Temporal service for tests in one
// process: the four server roles and the web UI, on an SQLite file or in a
// PostgreSQL server.
//
// It exists because the released server binary needs a database server and a
// schema tool, and because the development server inside the temporal CLI
// takes its database schema and internal ports out of the caller's hands. Here
// every port is given, the namespace and its search attributes are in the
// store before the first client can ask, and the file survives kill -9.
//
// With -tls-cert, -tls-client-ca and -jwks the frontend is secured by the server's
// own settings, as a configuration file would have them; there is no UI then.
//
// It listens on 127.0.0.1 only: for tests and demos.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	uiserver "github.com/temporalio/ui-server/v2/server"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	uioptions "github.com/temporalio/ui-server/v2/server/server_options"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"
)

// loopback is the only address that anything here binds.
const loopback = "127.0.0.1"

// stopLimit bounds a clean stop; past it the process exits with an error, which
// loses nothing: the store is transactional.
const stopLimit = 15 * time.Second

// options are the command's flags.
type options struct {
	port             int
	httpPort         int
	uiPort           int
	metricsPort      int
	internalPort     int
	database         string
	postgres         string
	security         security
	namespaces       []string
	searchAttributes map[string]enumspb.IndexedValueType
	dynamicConfig    string
	logLevel         string
}

func main() {
	opts, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(opts)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "temporal-server: %v\n", err)
		os.Exit(1)
	}
}

// parseFlags reads the command line and refuses what can't work.
func parseFlags(args []string) (options, error) {
	opts := options{searchAttributes: map[string]enumspb.IndexedValueType{}}
	flags := flag.NewFlagSet("temporal-server", flag.ContinueOnError)
	flags.IntVar(&opts.port, "port", 7233, "gRPC port of the frontend")
	flags.IntVar(&opts.httpPort, "http-port", 7243, "HTTP API port of the frontend")
	flags.IntVar(&opts.uiPort, "ui-port", 8233, "port of the web UI; 0 runs none")
	flags.IntVar(&opts.metricsPort, "metrics-port", 0, "port of /metrics; 0 serves none")
	flags.IntVar(&opts.internalPort, "internal-port", 7234, "first of four ports in a row for history, matching, worker and, in a secured server, its own frontend")
	flags.StringVar(&opts.database, "db", "", "SQLite file; created with its schema if it does not exist")
	flags.StringVar(&opts.postgres, "postgres", "", "host:port of a PostgreSQL server, instead of -db; its databases are made with their schema if they don't exist")
	flags.StringVar(&opts.security.certFile, "tls-cert", "", "PEM file with the frontend's certificate; turns TLS on")
	flags.StringVar(&opts.security.keyFile, "tls-key", "", "PEM file with its private key")
	flags.StringVar(&opts.security.clientCAFile, "tls-client-ca", "", "PEM file with the authorities that every client's certificate has to come from")
	flags.StringVar(&opts.security.jwks, "jwks", "", "file with the keys that callers' tokens have to be signed with; turns the default authorizer on")
	flags.StringVar(&opts.dynamicConfig, "dynamic-config", "", "YAML file of dynamic configuration; read again on SIGHUP and every 5 seconds")
	flags.StringVar(&opts.logLevel, "log-level", "warn", "debug, info, warn or error")
	flags.Func("namespace", "namespace to create in the SQLite store; may be repeated", func(name string) error {
		opts.namespaces = append(opts.namespaces, name)
		return nil
	})
	flags.Func("search-attribute", "NAME=TYPE of a custom search attribute, e.g. SickbayNode=Keyword; may be repeated", func(arg string) error {
		name, kind, found := strings.Cut(arg, "=")
		if !found {
			return fmt.Errorf("want NAME=TYPE")
		}
		value, err := enumspb.IndexedValueTypeFromString(kind)
		if err != nil {
			return err
		}
		opts.searchAttributes[name] = value
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return opts, err
	}
	if (opts.database == "") == (opts.postgres == "") {
		return opts, errors.New("want -db, the path of an SQLite file, or -postgres, the address of a server")
	}
	if opts.postgres != "" && len(opts.namespaces) > 0 {
		return opts, errors.New("-namespace only goes with -db")
	}
	if opts.security.on() && opts.uiPort != 0 {
		return opts, errors.New("a secured server has no UI here: want -ui-port 0")
	}
	if flags.NArg() > 0 {
		return opts, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return opts, nil
}

// run starts the server and the UI and stops both on SIGTERM or SIGINT.
func run(opts options) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	logger := log.NewZapLogger(log.BuildZapLogger(log.Config{Stdout: true, Level: opts.logLevel}))
	conf := serverConfig(opts)
	if err := prepareStore(conf, opts); err != nil {
		return err
	}
	server, err := newServer(ctx, conf, opts, logger)
	if err != nil {
		return fmt.Errorf("set up the server: %w", err)
	}
	if err := server.Start(); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}

	var ui *uiserver.Server
	uiFailed := make(chan error, 1)
	if opts.uiPort != 0 {
		ui = uiserver.NewServer(uioptions.WithConfigProvider(uiConfig(opts)))
		go func() { uiFailed <- ui.Start() }()
	}
	fmt.Printf("temporal-server: serving gRPC on %s:%d\n", loopback, opts.port)

	var failure error
	select {
	case <-ctx.Done():
	case failure = <-uiFailed:
		failure = fmt.Errorf("the UI on port %d ended: %w", opts.uiPort, failure)
	}
	stop()

	stopped := make(chan error, 1)
	go func() {
		if ui != nil {
			ui.Stop()
		}
		stopped <- server.Stop()
	}()
	select {
	case err := <-stopped:
		return errors.Join(failure, err)
	case <-time.After(stopLimit):
		return errors.Join(failure, fmt.Errorf("not stopped after %s", stopLimit))
	}
}

// newServer wires the four roles together over fixed local addresses: a single
// host needs no membership ring, and without one start-up takes half a second.
func newServer(ctx context.Context, conf *config.Config, opts options, logger log.Logger) (temporal.Server, error) {
	authorizer, err := authorization.GetAuthorizerFromConfig(&conf.Global.Authorization)
	if err != nil {
		return nil, err
	}
	claims, err := authorization.GetClaimMapperFromConfig(&conf.Global.Authorization, logger)
	if err != nil {
		return nil, err
	}
	settings, err := dynamicSettings(ctx, opts, logger)
	if err != nil {
		return nil, err
	}
	hosts := map[primitives.ServiceName]static.Hosts{}
	var services []string
	for service, settings := range conf.Services {
		services = append(services, service)
		hosts[primitives.ServiceName(service)] = static.SingleLocalHost(fmt.Sprintf("%s:%d", loopback, settings.RPC.GRPCPort))
	}
	return temporal.NewServer(
		temporal.WithConfig(conf),
		temporal.ForServices(services),
		temporal.WithStaticHosts(hosts),
		temporal.WithLogger(logger),
		temporal.WithAuthorizer(authorizer),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return claims }),
		temporal.WithDynamicConfigClient(settings),
	)
}

// dynamicSettings reads the dynamic configuration file, if there is one.
//
// SIGHUP reads it again at once, because a test that lowers a limit should not
// have to wait out the poll interval.
func dynamicSettings(ctx context.Context, opts options, logger log.Logger) (dynamicconfig.Client, error) {
	if opts.dynamicConfig == "" {
		return dynamicconfig.StaticClient{}, nil
	}
	done := make(chan any)
	settings, err := dynamicconfig.NewFileBasedClient(&dynamicconfig.FileBasedClientConfig{
		Filepath:     opts.dynamicConfig,
		PollInterval: 5 * time.Second,
	}, logger, done)
	if err != nil {
		return nil, err
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	go func() {
		defer close(done)
		defer signal.Stop(hangup)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangup:
				if err := settings.Update(); err != nil {
					fmt.Fprintf(os.Stderr, "temporal-server: %v\n", err)
				}
			}
		}
	}()
	return settings, nil
}

// uiConfig keeps the UI offline: it fetches no news and no fonts from outside.
func uiConfig(opts options) *uiconfig.Config {
	shown := "default"
	if len(opts.namespaces) > 0 {
		shown = opts.namespaces[0]
	}
	return &uiconfig.Config{
		Host:                loopback,
		Port:                opts.uiPort,
		TemporalGRPCAddress: fmt.Sprintf("%s:%d", loopback, opts.port),
		EnableUI:            true,
		DefaultNamespace:    shown,
		DisableNewsFetch:    true,
		CORS:                uiconfig.CORS{CookieInsecure: true},
		HideLogs:            true,
	}
}
