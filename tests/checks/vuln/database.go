package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// The database of vuln.go.dev is made from a module, golang.org/x/vulndb, which has
// its entries ready to be read. So it comes from the module proxy, at a version, and
// lies in the module cache: a commit that passes today passes tomorrow.
const (
	databaseModule = "golang.org/x/vulndb"
	// pinned is taken if nothing else is asked for. Raise it with the dependencies:
	// `go list -m golang.org/x/vulndb@latest` names the newest, `go mod download -json`
	// its sum.
	pinned    = "v0.0.0-20261105234957-e22db6528018"
	pinnedSum = "h1:mfngRv0Yoh0VApsXKEN82CjD99kl7mtparN3bs3JnqI="
	latest    = "latest"
)

// database is where govulncheck finds what is known.
type database struct {
	URL string
	// Version and Time are those of the module; zero for a database at a URL.
	Version string
	Time    time.Time
}

// text names the database and says how old it is.
func (d database) text(now time.Time) string {
	if d.Version == "" {
		return "database " + d.URL
	}
	return fmt.Sprintf("database of %s, %d days old (%s %s); VULNDB=latest takes the newest",
		d.Time.UTC().Format(time.DateOnly), int(now.Sub(d.Time).Hours()/24), databaseModule, d.Version)
}

// find gets the database that is named: a URL, latest, or the pinned one.
func find(ctx context.Context, named string) (database, error) {
	if strings.Contains(named, "://") {
		return database{URL: named}, nil
	}
	version := pinned
	switch named {
	case "":
	case latest:
		version = latest
	default:
		return database{}, fmt.Errorf("database %q: want latest, or a URL like https://vuln.go.dev", named)
	}
	download := exec.CommandContext(ctx, "go", "mod", "download", "-json", databaseModule+"@"+version)
	download.Env = append(os.Environ(), "GOWORK=off")
	output, err := download.Output()
	var got struct{ Version, Dir, Info, Sum, Error string }
	if json.Unmarshal(output, &got) == nil && got.Error != "" {
		return database{}, fmt.Errorf("get the database: %s", got.Error)
	}
	if err != nil {
		return database{}, fmt.Errorf("get the database, %s@%s: %w", databaseModule, version, said(err))
	}
	if version == pinned && got.Sum != pinnedSum {
		return database{}, fmt.Errorf("the database %s@%s has the sum %s, and not %s as in database.go", databaseModule, version, got.Sum, pinnedSum)
	}
	info, err := os.ReadFile(got.Info)
	if err != nil {
		return database{}, fmt.Errorf("read of what time the database is: %w", err)
	}
	d := database{URL: "file://" + filepath.ToSlash(filepath.Join(got.Dir, "data", "osv")), Version: got.Version}
	if err := json.Unmarshal(info, &struct{ Time *time.Time }{&d.Time}); err != nil {
		return database{}, fmt.Errorf("read of what time the database is: %w", err)
	}
	return d, nil
}
