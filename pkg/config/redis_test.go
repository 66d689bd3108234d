package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sickbay-dev/sickbay/pkg/directory"
)

func TestWithoutAddressesThereIsNoDirectory(t *testing.T) {
	var starter Starter
	if err := Load(&starter); err != nil {
		t.Fatal(err)
	}
	if starter.Redis.Configured() {
		t.Error("a directory is configured although no variable asks for one")
	}
}

func TestTheWayToRedisIsReadFromTheVariables(t *testing.T) {
	folder := t.TempDir()
	file := func(name string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Setenv("SICKBAY_REDIS_ADDRESSES", "a:26379, b:26379")
	t.Setenv("SICKBAY_REDIS_KIND", "sentinel")
	t.Setenv("SICKBAY_REDIS_MASTER", "devices")
	t.Setenv("SICKBAY_REDIS_PASSWORD_FILE", file("password"))
	t.Setenv("SICKBAY_REDIS_TLS_CA_FILE", file("ca.crt"))
	var worker Worker
	if err := Load(&worker); err != nil {
		t.Fatal(err)
	}
	c := worker.Redis.Connection("sickbay-worker")
	if c.Kind != directory.KindSentinel || !slices.Equal(c.Addresses, []string{"a:26379", "b:26379"}) || c.Master != "devices" {
		t.Errorf("connects as %+v", c)
	}
	if !c.UseTLS || c.CAFile == "" || c.PasswordFile == "" || c.Timeout == 0 || c.Name != "sickbay-worker" {
		t.Errorf("connects as %+v", c)
	}
}

func TestWhatDoesntFitTogetherForRedisIsRefusedAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		set  map[string]string
		want []string
	}{
		"an address without a port": {
			map[string]string{"SICKBAY_REDIS_ADDRESSES": "redis"},
			[]string{`SICKBAY_REDIS_ADDRESSES="redis": want a list of addresses like redis-0:6379,redis-1:6379 (address redis: missing port in address)`},
		},
		"several servers and no kind": {
			map[string]string{"SICKBAY_REDIS_ADDRESSES": "a:1,b:2", "SICKBAY_REDIS_USERNAME": "sickbay"},
			[]string{
				`SICKBAY_REDIS_ADDRESSES="a:1,b:2": want one address, or SICKBAY_REDIS_KIND=sentinel or cluster`,
				`SICKBAY_REDIS_USERNAME="sickbay": want SICKBAY_REDIS_PASSWORD_FILE too`,
			},
		},
		"sentinels without a master": {
			map[string]string{"SICKBAY_REDIS_ADDRESSES": "a:1", "SICKBAY_REDIS_KIND": "sentinel"},
			[]string{`SICKBAY_REDIS_MASTER="": want the master's name, since SICKBAY_REDIS_KIND is sentinel`},
		},
		"a master without sentinels, and a database of a cluster": {
			map[string]string{
				"SICKBAY_REDIS_ADDRESSES": "a:1", "SICKBAY_REDIS_KIND": "cluster",
				"SICKBAY_REDIS_MASTER": "devices", "SICKBAY_REDIS_DATABASE": "3",
			},
			[]string{
				`SICKBAY_REDIS_KIND="cluster": want sentinel, since SICKBAY_REDIS_MASTER or a variable for the sentinels is set`,
				`SICKBAY_REDIS_DATABASE=3: want 0, since SICKBAY_REDIS_KIND is cluster`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for variable, value := range tc.set {
				t.Setenv(variable, value)
			}
			err := Load(&Starter{})
			if !errors.Is(err, ErrConfig) {
				t.Fatalf("error %v, want one that says that the configuration is wrong", err)
			}
			if got := lines(err); !slices.Equal(got, tc.want) {
				t.Errorf("refused with\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}
