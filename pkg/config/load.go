package config

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/kelseyhightower/envconfig"

	"github.com/sickbay-dev/sickbay/pkg/spelling"
)

// ErrConfig is wrapped by every error of Load: the environment is wrong, and
// trying again won't help.
var ErrConfig = errors.New("wrong configuration")

// wrong marks an error as one of the configuration without another word in it.
func wrong(err error) error { return &wrongError{err} }

type wrongError struct{ error }

func (e *wrongError) Unwrap() []error { return []error{e.error, ErrConfig} }

// VariableError is one variable that was refused.
type VariableError struct {
	Name    string
	Value   string
	Allowed string
	Err     error
}

func (e *VariableError) Error() string {
	return fmt.Sprintf("%s=%q: want %s (%v)", e.Name, e.Value, e.Allowed, e.Err)
}

func (e *VariableError) Unwrap() []error { return []error{e.Err, ErrConfig} }

// UnknownVariableError is a variable that begins with SICKBAY_ and means nothing.
type UnknownVariableError struct {
	Name string
	// Nearest is the name that was probably meant, or empty.
	Nearest string
}

func (e *UnknownVariableError) Error() string {
	if e.Nearest == "" {
		return e.Name + ": there is no such variable; unset it (docs/configuration.md lists all)"
	}
	return fmt.Sprintf("%s: there is no such variable; did you mean %s?", e.Name, e.Nearest)
}

func (e *UnknownVariableError) Unwrap() error { return ErrConfig }

// spec is a command's struct, given by pointer.
type spec interface {
	// check names what doesn't fit together, by the variables' names. It sees
	// defaults where a value was refused. Each error wraps ErrConfig.
	check() []error
}

// Load fills a command's struct from the environment. The error joins everything
// that is wrong, and wraps ErrConfig.
func Load(s spec) error {
	var refused []error
	for _, v := range Variables(s) {
		if err := v.read(); err != nil {
			v.useDefault()
			refused = append(refused, err)
		}
	}
	return errors.Join(slices.Concat(refused, s.check(), unknown(os.Environ()))...)
}

func (v Variable) refuse(err error) error {
	value, set := os.LookupEnv(v.Name)
	if !set {
		value = v.Default
	}
	// What envconfig says around the cause repeats the name and the value.
	if parse, ok := errors.AsType[*envconfig.ParseError](err); ok {
		err = parse.Err
	}
	shown := v.shown(value)
	return &VariableError{Name: v.Name, Value: shown, Allowed: v.Allowed(), Err: &shownError{err, withoutPassword(strings.ReplaceAll(err.Error(), value, shown))}}
}

// shown is a value as it may be shown. An address may have a password in it that
// should stand in a file, and where a file is wanted somebody may have put what
// belongs into it.
func (v Variable) shown(value string) string {
	if v.field.Tag.Get("form") == "file" && value != "" && !path.MatchString(value) {
		return fmt.Sprintf("… %d characters that are no path", len(value))
	}
	return withoutPassword(value)
}

// path is what a file may be called: with a folder, or short and with an ending.
var path = regexp.MustCompile(`^[^\s]*/[^\s]*$|^[\w-]{1,20}(\.[\w-]{1,8}){1,2}$`)

// password is what stands between a user's name and the host in an address, with or
// without a scheme, and in each address of a list.
var password = regexp.MustCompile(`:([^:@\s"',]+)@`)

func withoutPassword(text string) string {
	if address, err := url.Parse(text); err == nil && address.User != nil {
		text = address.Redacted()
	}
	return password.ReplaceAllString(text, ":xxxxx@")
}

// shownError is an error that says no more than may be shown.
type shownError struct {
	error
	text string
}

func (e *shownError) Error() string { return e.text }

func (e *shownError) Unwrap() error { return e.error }

// commands are the structs of all commands. A variable that another command
// knows is no mistake: all of a cluster's processes may share one set.
func commands() []any {
	return []any{Starter{}, Worker{}, Client{}, Rebuild{}, Audit{}, Doctor{}, Setup{}, WatchPods{}, Governed{}}
}

// serviceLink matches the variables that the kubelet sets in a Pod for each
// Service of its namespace. One called sickbay, or sickbay-starter, gives names
// that begin like ours. (k8s.io/kubernetes pkg/kubelet/envvars.)
var serviceLink = regexp.MustCompile(`^SICKBAY_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// reserved begins the names that the development stack under tests/ reads.
const reserved = Prefix + "_STACK_"

func unknown(environment []string) []error {
	var known []string
	for _, spec := range commands() {
		for _, v := range Variables(spec) {
			known = append(known, v.Name)
		}
	}
	slices.Sort(known)
	known = slices.Compact(known)
	var refused []error
	for _, entry := range slices.Sorted(slices.Values(environment)) {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, Prefix+"_") || strings.HasPrefix(name, reserved) || serviceLink.MatchString(name) {
			continue
		}
		if _, ok := slices.BinarySearch(known, name); !ok {
			refused = append(refused, &UnknownVariableError{Name: name, Nearest: spelling.Nearest(name, known)})
		}
	}
	return refused
}
