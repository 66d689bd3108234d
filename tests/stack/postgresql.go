package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// postgresUser is the database's superuser, whom Temporal logs in as. Nothing but
// the loopback address is listened on, and nobody is asked for a password.
const postgresUser = "temporal"

// postgresPackage is Debian's, of whatever version the release has.
const postgresPackage = "postgresql"

// findPostgreSQL finds the folder with initdb and postgres of the newest version
// that Debian's package put there, and installs the package if it is missing and
// may be installed. The package keeps them out of PATH.
func findPostgreSQL(ctx context.Context, progress io.Writer) (string, error) {
	find := func() string {
		found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
		if err != nil || len(found) == 0 {
			return ""
		}
		slices.Sort(found)
		return filepath.Dir(found[len(found)-1])
	}
	if folder := find(); folder != "" {
		return folder, nil
	}
	if err := install(ctx, progress, postgresPackage); err != nil {
		return "", err
	}
	if folder := find(); folder != "" {
		return folder, nil
	}
	return "", errors.New("no initdb in /usr/lib/postgresql/*/bin, although the package " + postgresPackage + " is installed")
}

// postgresCredential is whom PostgreSQL runs as where the test is root, which it
// refuses to run as: the user that its package made. Nil: as the test.
func postgresCredential() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("find the user that PostgreSQL runs as: %w", err)
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s has ID %q: %w", account.Username, account.Uid, err)
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s has group %q: %w", account.Username, account.Gid, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// startPostgreSQL makes a database cluster, if the stack's directory has none yet,
// and serves it.
func (s *Stack) startPostgreSQL(ctx context.Context) error {
	account, err := postgresCredential()
	if err != nil {
		return err
	}
	data := filepath.Join(s.Dir(), "postgresql")
	if err := s.initPostgreSQL(ctx, data, account); err != nil {
		return fmt.Errorf("make PostgreSQL's data folder: %w", err)
	}
	port := s.ports.port(portPostgreSQL)
	return s.StartProcess(ctx, Process{
		Name: PostgreSQL,
		Path: filepath.Join(s.postgres, "postgres"),
		Args: []string{
			"-D", data, "-h", "127.0.0.1", "-p", fmt.Sprint(port), "-k", "",
			// Survives kill -9 of the process, not a power cut: enough here.
			"-c", "fsync=off", "-c", "full_page_writes=off",
		},
		Dir:  data,
		User: account,
		Ready: func(ctx context.Context) error {
			probe := exec.CommandContext(ctx, filepath.Join(s.postgres, "pg_isready"), "-h", "127.0.0.1", "-p", fmt.Sprint(port))
			output, err := probe.CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, output)
			}
			return nil
		},
	})
}

func (s *Stack) initPostgreSQL(ctx context.Context, data string, account *syscall.Credential) error {
	if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); err == nil {
		return nil
	}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	if account != nil {
		// The user has to get through to its own folder; what else is in the stack's
		// can't be listed by that, and the secrets in it are readable by their owner.
		if err := os.Chmod(s.Dir(), 0o711); err != nil {
			return err
		}
		if err := os.Chown(data, int(account.Uid), int(account.Gid)); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.postgres, "initdb"), "-D", data,
		"--username="+postgresUser, "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
	cmd.Dir = data
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: account}
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, output)
	}
	return nil
}
