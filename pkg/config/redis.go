package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sickbay-dev/sickbay/pkg/directory"
)

// Redis says where the device directory is. Without addresses there is none:
// nothing but what reads the directory lacks it.
type Redis struct {
	Addresses            Addresses     `split_words:"true" desc:"Redis servers that hold the device directory: the server, the sentinels, or some nodes of a cluster. Empty: no directory."`
	Kind                 string        `split_words:"true" default:"single" oneof:"single sentinel cluster" desc:"How that Redis is set up, and so whose addresses these are."`
	Master               string        `split_words:"true" desc:"Name by which the sentinels know the master. For SICKBAY_REDIS_KIND=sentinel."`
	Prefix               string        `split_words:"true" default:"sickbay" form:"name" desc:"What the names of this installation's keys begin with, where several share a Redis."`
	Database             int           `split_words:"true" default:"0" min:"0" max:"1000" desc:"Number of the database. A cluster has only 0."`
	Username             string        `split_words:"true" desc:"User to log in as. Empty: the default user."`
	PasswordFile         string        `split_words:"true" form:"file" desc:"File with the password; read again for each connection."`
	SentinelUsername     string        `split_words:"true" desc:"User to log in as at the sentinels."`
	SentinelPasswordFile string        `split_words:"true" form:"file" desc:"File with the password for the sentinels; read at the start."`
	Timeout              time.Duration `split_words:"true" default:"2s" min:"10ms" max:"1m" desc:"How long one connecting, reading or writing may take."`
	TLS                  RedisTLS
}

// RedisTLS says how the connection to Redis is secured. Any of its fields turns it on.
type RedisTLS struct {
	Enabled    bool   `split_words:"true" default:"false" desc:"Use TLS to Redis even if none of the other variables for it is set."`
	CAFile     string `split_words:"true" form:"file" desc:"PEM file with the authorities that Redis' certificate may come from. Empty: the system's."`
	CertFile   string `split_words:"true" form:"file" desc:"PEM file with this process's certificate for Redis; read again for each connection."`
	KeyFile    string `split_words:"true" form:"file" desc:"PEM file with that certificate's private key; read again for each connection."`
	ServerName string `split_words:"true" desc:"Name to expect in Redis' certificate. Empty: the host of the address."`
}

// Rebuild is the configuration of `sickbay rebuild`.
type Rebuild struct {
	Client
	Reasons Reasons
}

func (r *Rebuild) check() []error {
	errs := slices.Concat(r.Client.check(), r.Reasons.check())
	if !r.Redis.Configured() {
		errs = append(errs, wrong(errors.New("SICKBAY_REDIS_ADDRESSES: want the address of the Redis whose directory is to be rebuilt")))
	}
	return errs
}

// Audit is the configuration of `sickbay audit`, which needs no cluster.
type Audit struct {
	Temporal Temporal
	Redis    Redis
}

func (a *Audit) check() []error { return append(a.Temporal.check(), a.Redis.check()...) }

// Configured tells whether there is a directory.
func (r Redis) Configured() bool { return len(r.Addresses) > 0 }

// Connection is the same, as pkg/directory takes it. name is what the server calls
// the connection.
func (r Redis) Connection(name string) directory.Connection {
	return directory.Connection{
		Kind: directory.Kind(r.Kind), Addresses: r.Addresses, Master: r.Master, Database: r.Database,
		Username: r.Username, PasswordFile: r.PasswordFile,
		SentinelUsername: r.SentinelUsername, SentinelPasswordFile: r.SentinelPasswordFile,
		UseTLS: r.TLS.Enabled || r.TLS.CAFile != "" || r.TLS.CertFile != "" || r.TLS.ServerName != "",
		CAFile: r.TLS.CAFile, CertFile: r.TLS.CertFile, KeyFile: r.TLS.KeyFile, ServerName: r.TLS.ServerName,
		Timeout: r.Timeout, Name: name,
	}
}

func (r Redis) check() []error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, wrong(fmt.Errorf(format, args...))) }
	if !r.Configured() {
		return nil
	}
	addresses := strings.Join(r.Addresses, ",")
	if r.Kind == string(directory.KindSingle) && len(r.Addresses) > 1 {
		refuse("SICKBAY_REDIS_ADDRESSES=%q: want one address, or SICKBAY_REDIS_KIND=sentinel or cluster", addresses)
	}
	if r.Kind == string(directory.KindSentinel) && r.Master == "" {
		refuse("SICKBAY_REDIS_MASTER=%q: want the master's name, since SICKBAY_REDIS_KIND is sentinel", r.Master)
	}
	if r.Kind != string(directory.KindSentinel) && r.Master+r.SentinelUsername+r.SentinelPasswordFile != "" {
		refuse("SICKBAY_REDIS_KIND=%q: want sentinel, since SICKBAY_REDIS_MASTER or a variable for the sentinels is set", r.Kind)
	}
	if r.Kind == string(directory.KindCluster) && r.Database != 0 {
		refuse("SICKBAY_REDIS_DATABASE=%d: want 0, since SICKBAY_REDIS_KIND is cluster", r.Database)
	}
	if r.Username != "" && r.PasswordFile == "" {
		refuse("SICKBAY_REDIS_USERNAME=%q: want SICKBAY_REDIS_PASSWORD_FILE too", r.Username)
	}
	if (r.TLS.CertFile == "") != (r.TLS.KeyFile == "") {
		refuse("SICKBAY_REDIS_TLS_CERT_FILE=%q and SICKBAY_REDIS_TLS_KEY_FILE=%q: want both or neither", r.TLS.CertFile, r.TLS.KeyFile)
	}
	return errs
}

// Addresses are addresses to connect to.
type Addresses []string

func (Addresses) allowed() string { return "a list of addresses like redis-0:6379,redis-1:6379" }

// Decode reads the list. envconfig calls it.
func (a *Addresses) Decode(text string) error {
	var addresses Addresses
	for entry := range strings.SplitSeq(text, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		if err := checkDial(entry); err != nil {
			return err
		}
		addresses = append(addresses, entry)
	}
	*a = addresses
	return nil
}
