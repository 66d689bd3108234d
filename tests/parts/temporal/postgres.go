// The databases in a PostgreSQL server, set up by the code of temporal-sql-tool.

package main

import (
	"errors"
	"fmt"

	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	postgresplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql"
	"go.temporal.io/server/tools/common/schema"
	"go.temporal.io/server/tools/sql"
)

// The names that Temporal's documentation gives to its user and databases.
const (
	postgresUser       = "temporal"
	mainDatabase       = "temporal"
	visibilityDatabase = "temporal_visibility"
	// maintenanceDatabase is there in every server.
	maintenanceDatabase = "postgres"
	// duplicateDatabase is the server's answer to making one that is there.
	duplicateDatabase = "42P04"
)

// schemas are the embedded schemas of the databases.
func schemas() map[string]string {
	return map[string]string{
		mainDatabase:       "postgresql/v12/temporal",
		visibilityDatabase: "postgresql/v12/visibility",
	}
}

func postgresConfig(address, database string) *config.SQL {
	return &config.SQL{
		PluginName:   postgresplugin.PluginNamePGX,
		DatabaseName: database,
		ConnectAddr:  address,
		User:         postgresUser,
		// The released server's configuration has these numbers.
		MaxConns:     20,
		MaxIdleConns: 20,
	}
}

// preparePostgres makes the databases that aren't there yet and brings their
// schemas up to date.
func preparePostgres(address string) error {
	logger := log.NewZapLogger(log.BuildZapLogger(log.Config{Stdout: true, Level: "warn"}))
	for _, database := range []string{mainDatabase, visibilityDatabase} {
		if err := prepareDatabase(address, database, logger); err != nil {
			return fmt.Errorf("prepare database %s in PostgreSQL at %s: %w", database, address, err)
		}
	}
	return nil
}

func prepareDatabase(address, database string, logger log.Logger) error {
	err := sql.DoCreateDatabase(postgresConfig(address, database), maintenanceDatabase, logger)
	var answered interface{ SQLState() string }
	if err != nil && !(errors.As(err, &answered) && answered.SQLState() == duplicateDatabase) {
		return fmt.Errorf("create it: %w", err)
	}
	connection, err := sql.NewConnection(postgresConfig(address, database), logger)
	if err != nil {
		return err
	}
	defer connection.Close()
	if _, err := connection.ReadSchemaVersion(); err != nil {
		if err := schema.NewSetupSchemaTask(connection, &schema.SetupConfig{InitialVersion: "0.0"}, logger).Run(); err != nil {
			return fmt.Errorf("set its schema up: %w", err)
		}
	}
	update := &schema.UpdateConfig{DBName: database, SchemaName: schemas()[database]}
	if err := schema.NewUpdateSchemaTask(connection, update, logger).Run(); err != nil {
		return fmt.Errorf("update its schema: %w", err)
	}
	return nil
}
