package image_test

// This file builds the image once and looks at all that is in it.

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"

	"github.com/sickbay-dev/sickbay/tests/checks"
	"github.com/sickbay-dev/sickbay/tests/image"
)

// largest is what the image may have in bytes: it had 85 MB when this was written, nearly
// all of it the program.
const largest = 95_000_000

// unlicensed is the one module that comes without a licence file: Temporal's own
// definitions for Nexus, which go.temporal.io/api needs.
const unlicensed = "github.com/nexus-rpc/nexus-proto-annotations"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// built is what the tests look at.
type built struct {
	image.Contents
	// root is the clone, program the image's program as a file here.
	root, program string
	version       struct {
		Version, Commit, CommitTime string
		Modified                    bool
	}
}

// The image has one static program, which knows its commit, and what goes with it; no
// shell, nothing of the machine that it was built on, and no user but a nobody.
func TestTheImageHasTheProgramAndNothingElse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: buildah makes chroots; run `sudo make kubelet`")
	}
	archive, err := image.Build(t.Context(), t.TempDir())
	must(t, err)
	b := built{}
	b.Contents, err = image.Read(archive)
	must(t, err)
	b.root, err = checks.Root()
	must(t, err)
	b.program = filepath.Join(t.TempDir(), "sickbay")
	must(t, os.WriteFile(b.program, b.Files["usr/bin/sickbay"].Content, 0o700))
	said, err := exec.CommandContext(t.Context(), b.program, "version", "-o", "json").Output()
	must(t, err)
	must(t, json.Unmarshal(said, &b.version))

	t.Run("it has just the files that it should", b.files)
	t.Run("it says what it is and runs as nobody", b.says)
	t.Run("the program is static and knows its commit", b.knowsItsCommit)
	t.Run("the same commit gives the same program", b.isReproducible)
	t.Run("it lists every module that is in it, with its licence", b.lists)
	t.Run("it has nothing of the machine that it was built on", b.isClean)
}

func (b built) files(t *testing.T) {
	allowed := regexp.MustCompile(`^(usr/bin/sickbay|etc/passwd|etc/group|etc/ssl/certs/ca-certificates\.crt|usr/share/doc/sickbay/(LICENSE|sbom\.cdx\.json|licenses/.+))$`)
	for name, file := range b.Files {
		if !allowed.MatchString(name) {
			t.Errorf("it has %s, which nothing needs", name)
		}
		mode := file.Header.FileInfo().Mode()
		if file.Header.Typeflag != tar.TypeReg || file.Header.Uid != 0 || mode.Perm()&0o022 != 0 || mode&(os.ModeSetuid|os.ModeSetgid) != 0 {
			t.Errorf("%s: type %c, owner %d, mode %s: want a regular file that only root may write", name, file.Header.Typeflag, file.Header.Uid, mode)
		}
		if name != "usr/bin/sickbay" && mode.Perm()&0o111 != 0 {
			t.Errorf("%s can be run", name)
		}
		if mode.Perm()&0o004 == 0 {
			t.Errorf("%s can't be read by the user that the image runs as", name)
		}
	}
	if authorities := b.Files["etc/ssl/certs/ca-certificates.crt"].Content; !bytes.Contains(authorities, []byte("BEGIN CERTIFICATE")) {
		t.Error("it trusts no authority: TLS to a Temporal with a public certificate can't work")
	}
	if b.Size > largest {
		t.Errorf("it has %d bytes, more than %d", b.Size, largest)
	}
	t.Logf("%d files, %d bytes", len(b.Files), b.Size)
}

func (b built) says(t *testing.T) {
	config := b.Config.Config
	if config.User != "65532:65532" {
		t.Errorf("it runs as %q, want a number that isn't root's", config.User)
	}
	if strings.Join(config.Entrypoint, " ") != "/usr/bin/sickbay" {
		t.Errorf("its entry point is %q", config.Entrypoint)
	}
	for name, want := range map[string]string{
		"title": "Sickbay", "licenses": "Apache-2.0", "source": "https://github.com/sickbay-dev/sickbay",
		"version": b.version.Version, "revision": b.version.Commit, "created": b.version.CommitTime,
	} {
		if got := config.Labels["org.opencontainers.image."+name]; got != want || got == "" {
			t.Errorf("its label %s is %q, want %q", name, got, want)
		}
	}
}

func (b built) git(t *testing.T, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "git", args...)
	command.Dir = b.root
	out, err := command.Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

func (b built) knowsItsCommit(t *testing.T) {
	if want := b.git(t, "rev-parse", "HEAD"); b.version.Commit != want {
		t.Errorf("it says commit %q, want %s", b.version.Commit, want)
	}
	if want := b.git(t, "status", "--porcelain") != ""; b.version.Modified != want {
		t.Errorf("it says modified: %t, want %t", b.version.Modified, want)
	}
	if b.version.Version == "" || b.version.Version == "(devel)" {
		t.Errorf("it says version %q", b.version.Version)
	}
	program, err := elf.Open(b.program)
	must(t, err)
	defer program.Close()
	for _, part := range program.Progs {
		if part.Type == elf.PT_INTERP || part.Type == elf.PT_DYNAMIC {
			t.Error("the program isn't static: there is nothing in the image that could load it")
		}
	}
}

// isReproducible builds the program once more: elsewhere, with modules elsewhere, and
// without a container.
func (b built) isReproducible(t *testing.T) {
	elsewhere := t.TempDir()
	for _, name := range strings.Split(b.git(t, "ls-files", "--cached", "--others", "--exclude-standard"), "\n") {
		if strings.HasPrefix(name, "tests/") || strings.HasPrefix(name, "docs/") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(b.root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed
		}
		must(t, err)
		must(t, os.MkdirAll(filepath.Join(elsewhere, filepath.Dir(name)), 0o755))
		must(t, os.WriteFile(filepath.Join(elsewhere, name), content, 0o600))
	}
	modified := ""
	if b.version.Modified {
		modified = "true"
	}
	// In the Dockerfile's order: it is a part of the build ID.
	flags := "-s -w"
	for _, stamp := range []struct{ name, value string }{
		{"Version", b.version.Version}, {"Commit", b.version.Commit}, {"Time", b.version.CommitTime}, {"Modified", modified},
	} {
		flags += " -X github.com/sickbay-dev/sickbay/cmd.stamped" + stamp.name + "=" + stamp.value
	}
	again := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", "again", ".")
	again.Dir = elsewhere
	again.Env = append(os.Environ(), "CGO_ENABLED=0", "GOTOOLCHAIN=local", "GOFLAGS=")
	if out, err := again.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	second, err := os.ReadFile(filepath.Join(elsewhere, "again"))
	must(t, err)
	if sha256.Sum256(second) != sha256.Sum256(b.Files["usr/bin/sickbay"].Content) {
		t.Error("a second build gives another program")
	}
}

// lists compares three accounts of the same: what the linker wrote into the program, the
// bill of materials, and go.mod.
func (b built) lists(t *testing.T) {
	linked, err := buildinfo.ReadFile(b.program)
	must(t, err)
	var bill struct {
		BOMFormat   string `json:"bomFormat"`
		SpecVersion string `json:"specVersion"`
		Metadata    struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ Name, Version string }
	}
	must(t, json.Unmarshal(b.Files["usr/share/doc/sickbay/sbom.cdx.json"].Content, &bill))
	if bill.BOMFormat != "CycloneDX" || bill.SpecVersion == "" || bill.Metadata.Component.Name != "github.com/sickbay-dev/sickbay" || bill.Metadata.Component.Version != b.version.Version {
		t.Errorf("the bill of materials is a %s %s of %+v", bill.BOMFormat, bill.SpecVersion, bill.Metadata.Component)
	}
	billed := map[string]string{}
	for _, component := range bill.Components {
		billed[component.Name] = component.Version
	}
	if billed["std"] == "" {
		t.Error("the bill of materials lacks Go's own library")
	}
	content, err := os.ReadFile(filepath.Join(b.root, "go.mod"))
	must(t, err)
	file, err := modfile.Parse("go.mod", content, nil)
	must(t, err)
	required := map[string]string{}
	for _, r := range file.Require {
		required[r.Mod.Path] = r.Mod.Version
	}
	if len(linked.Deps) < 20 {
		t.Errorf("the program has %d modules: nothing is compared", len(linked.Deps))
	}
	for _, module := range linked.Deps {
		if billed[module.Path] != module.Version || required[module.Path] != module.Version {
			t.Errorf("%s %s is in the program; the bill of materials has %q, go.mod %q", module.Path, module.Version, billed[module.Path], required[module.Path])
		}
		if !b.has("usr/share/doc/sickbay/licenses/" + module.Path) {
			t.Errorf("the image has no licence of %s", module.Path)
		}
		if _, none := b.Files["usr/share/doc/sickbay/licenses/"+module.Path+"/NONE"]; none && module.Path != unlicensed {
			t.Errorf("%s comes without a licence file: may it be shipped?", module.Path)
		}
	}
	if want := len(linked.Deps) + 1; len(billed) != want {
		t.Errorf("the bill of materials has %d components, want the %d modules of the program and std", len(billed), want)
	}
	license, err := os.ReadFile(filepath.Join(b.root, "LICENSE"))
	must(t, err)
	if !bytes.Equal(license, b.Files["usr/share/doc/sickbay/LICENSE"].Content) {
		t.Error("its own licence isn't the clone's")
	}
}

// has tells whether there is a file in a folder itself.
func (b built) has(folder string) bool {
	for name := range b.Files {
		if path.Dir(name) == folder {
			return true
		}
	}
	return false
}

// isClean looks for what would tell of the machine: its paths, where it gets modules
// from, and what its environment says of proxies.
func (b built) isClean(t *testing.T) {
	forbidden := map[string]string{"the clone's path": b.root, "where modules were mounted": "/gomod/", "where Go was mounted": "/goroot/"}
	home, err := os.UserHomeDir()
	must(t, err)
	if home != "/root" { // which is in many programs
		forbidden["the home folder"] = home
	}
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOPROXY").Output()
	must(t, err)
	// Go's own proxy tells nothing of the machine, and stands in many programs.
	for _, proxy := range strings.FieldsFunc(strings.TrimSpace(string(out)), func(r rune) bool { return r == ',' || r == '|' }) {
		if address, err := url.Parse(proxy); err == nil && address.Host != "" && !strings.HasSuffix(address.Host, ".golang.org") {
			forbidden["a module proxy"] = address.Host
		}
	}
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		if address, err := url.Parse(value); strings.HasSuffix(strings.ToLower(name), "_proxy") && err == nil && address.Host != "" {
			forbidden[name] = address.Host
		}
	}
	for what, text := range forbidden {
		if bytes.Contains(b.RawConfig, []byte(text)) {
			t.Errorf("the image's configuration tells %s: %s", what, text)
		}
		for name, file := range b.Files {
			if bytes.Contains(file.Content, []byte(text)) {
				t.Errorf("%s tells %s: %s", name, what, text)
			}
		}
	}
	for _, variable := range b.Config.Config.Env {
		if name, _, _ := strings.Cut(variable, "="); name != "PATH" {
			t.Errorf("the image sets %s", name)
		}
	}
	if private := regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----\n[A-Za-z0-9+/=]`); private.Match(b.Files["etc/ssl/certs/ca-certificates.crt"].Content) {
		t.Error("there is a private key among the authorities")
	}
}
