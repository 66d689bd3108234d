// The server's static configuration and its store: schema, namespaces and search
// attributes, all in place before the server starts.

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/metrics"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/schema/sqlite"
)

const (
	// clusterName is the one cluster of a server without replication.
	clusterName = "active"
	// storeName is how the persistence configuration refers to the SQLite file, and
	// to the first of PostgreSQL's two databases.
	storeName = "store"
	// visibilityName is how it refers to the second.
	visibilityName = "visibility"
)

// serverConfig is what a configuration file of the released server would hold.
func serverConfig(opts options) *config.Config {
	frontend := fmt.Sprintf("%s:%d", loopback, opts.port)
	conf := &config.Config{
		Persistence: persistence(opts),
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{
				clusterName: {
					Enabled:                true,
					InitialFailoverVersion: 1,
					RPCAddress:             frontend,
					HTTPAddress:            fmt.Sprintf("%s:%d", loopback, opts.httpPort),
				},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		PublicClient:        config.PublicClient{HostPort: frontend},
		Archival: config.Archival{
			History:    config.HistoryArchival{State: "disabled"},
			Visibility: config.VisibilityArchival{State: "disabled"},
		},
		NamespaceDefaults: config.NamespaceDefaults{
			Archival: config.ArchivalNamespaceDefaults{
				History:    config.HistoryArchivalNamespaceDefaults{State: "disabled"},
				Visibility: config.VisibilityArchivalNamespaceDefaults{State: "disabled"},
			},
		},
		Services: map[string]config.Service{
			string(primitives.FrontendService): service(opts.port, opts.httpPort),
			string(primitives.HistoryService):  service(opts.internalPort, 0),
			string(primitives.MatchingService): service(opts.internalPort+1, 0),
			string(primitives.WorkerService):   service(opts.internalPort+2, 0),
		},
	}
	opts.security.apply(conf, opts.internalPort+3)
	conf.Global.Membership.MaxJoinDuration = 30 * time.Second
	conf.Global.Membership.BroadcastAddress = loopback
	if opts.metricsPort != 0 {
		conf.Global.Metrics = &metrics.Config{Prometheus: &metrics.PrometheusConfig{
			ListenAddress: fmt.Sprintf("%s:%d", loopback, opts.metricsPort),
			HandlerPath:   "/metrics",
		}}
	}
	return conf
}

func service(grpcPort, httpPort int) config.Service {
	return config.Service{RPC: config.RPC{GRPCPort: grpcPort, HTTPPort: httpPort, BindOnIP: loopback}}
}

// persistence is one SQLite file, or two databases in a PostgreSQL server.
func persistence(opts options) config.Persistence {
	stores := config.Persistence{DefaultStore: storeName, VisibilityStore: storeName, NumHistoryShards: 1}
	stores.DataStores = map[string]config.DataStore{storeName: {SQL: sqlConfig(opts.database)}}
	if opts.postgres != "" {
		stores.VisibilityStore = visibilityName
		stores.DataStores = map[string]config.DataStore{
			storeName:      {SQL: postgresConfig(opts.postgres, mainDatabase)},
			visibilityName: {SQL: postgresConfig(opts.postgres, visibilityDatabase)},
		}
	}
	return stores
}

// sqlConfig opens the file with a write-ahead log: commits are then cheap, and
// what was acknowledged is still there after kill -9 of the process.
func sqlConfig(file string) *config.SQL {
	return &config.SQL{
		PluginName:   sqliteplugin.PluginName,
		DatabaseName: file,
		ConnectAttributes: map[string]string{
			"mode":         "rwc",
			"journal_mode": "wal",
			"synchronous":  "normal",
			"busy_timeout": "10000",
		},
	}
}

// prepareStore creates the schema if the file is new, and the namespaces that
// are not in it yet. The schema is built beside the file and renamed into
// place, so that a process killed half-way leaves no half-built store.
func prepareStore(conf *config.Config, opts options) error {
	if opts.postgres != "" {
		return preparePostgres(opts.postgres)
	}
	_, err := os.Stat(opts.database)
	if errors.Is(err, fs.ErrNotExist) {
		err = createSchema(opts.database)
	}
	if err != nil {
		return fmt.Errorf("prepare the store %s: %w", opts.database, err)
	}
	var namespaces []*sqlite.NamespaceConfig
	for _, name := range opts.namespaces {
		namespace, err := sqlite.NewNamespaceConfig(clusterName, name, false, opts.searchAttributes)
		if err != nil {
			return fmt.Errorf("describe the namespace %s: %w", name, err)
		}
		namespaces = append(namespaces, namespace)
	}
	if err := sqlite.CreateNamespaces(conf.Persistence.DataStores[storeName].SQL, namespaces...); err != nil {
		return fmt.Errorf("create namespaces in %s: %w", opts.database, err)
	}
	return nil
}

func createSchema(file string) error {
	building := file + ".new"
	for _, stale := range []string{building, building + "-wal", building + "-shm"} {
		if err := os.Remove(stale); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	conf := sqlConfig(building)
	// One file to rename: a rollback journal is gone once the schema is there.
	conf.ConnectAttributes["journal_mode"] = "delete"
	if err := sqlite.SetupSchema(conf); err != nil {
		return err
	}
	return os.Rename(building, file)
}
