// Package image builds the container image as `make image` does, with buildah and
// without a registry or a daemon: on a builder image that is made on the machine, from
// the machine's own Go and tools.
//
// It owns where the build works, what it is given of the machine, and how archives of
// images are made and read. It must never know what the image is for, and leaves nothing
// behind.
package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sickbay-dev/sickbay/tests/checks"
)

// Name is what the manifests call the image.
const Name = "ghcr.io/sickbay-dev/sickbay:dev"

// builder is an empty system: what is in it comes from the machine, by mounts.
const builder = "localhost/sickbay/builder:1"

// builderFile makes it. The folders are where the machine's are mounted.
const builderFile = `FROM scratch
COPY root/ /
ENV PATH=/goroot/bin:/usr/bin:/bin HOME=/root GOTOOLCHAIN=local GOCACHE=/gocache GOMODCACHE=/gomod
`

// Build builds the image from this clone, and returns the path of its archive, in a
// folder that is the caller's. It needs root, and buildah, which is installed with apt
// if it is missing.
func Build(ctx context.Context, folder string) (archive string, err error) {
	root, err := checks.Root()
	if err != nil {
		return "", err
	}
	b, err := newBuildah(ctx, folder)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, b.remove()) }()
	if err := b.makeBuilder(ctx); err != nil {
		return "", err
	}
	flags, err := b.flags(ctx)
	if err != nil {
		return "", err
	}
	makeImage := exec.CommandContext(ctx, "make", "image", "IMAGE="+Name,
		"IMAGE_ENGINE="+strings.Join(b.command, " "), "IMAGE_FLAGS="+strings.Join(flags, " "))
	makeImage.Dir = root
	if err := b.run(makeImage); err != nil {
		return "", err
	}
	archive = filepath.Join(folder, "sickbay.tar")
	return archive, b.buildah(ctx, "push", "--quiet", Name, "docker-archive:"+archive+":"+Name)
}

// buildah is buildah with a store of its own.
type buildah struct {
	dir     string
	command []string
}

func newBuildah(ctx context.Context, folder string) (*buildah, error) {
	path, err := findBuildah(ctx)
	if err != nil {
		return nil, err
	}
	b := &buildah{dir: filepath.Join(folder, "buildah")}
	if err := os.MkdirAll(filepath.Join(b.dir, "tmp"), 0o700); err != nil {
		return nil, err
	}
	// vfs copies instead of mounting: it works in any container, and leaves no mounts.
	b.command = []string{path, "--root", filepath.Join(b.dir, "store"), "--runroot", filepath.Join(b.dir, "run"), "--storage-driver", "vfs"}
	return b, nil
}

func findBuildah(ctx context.Context) (string, error) {
	if os.Geteuid() != 0 {
		return "", errors.New("the image is built as root")
	}
	if path, err := exec.LookPath("buildah"); err == nil {
		return path, nil
	}
	for _, args := range [][]string{{"update", "-qq"}, {"install", "-y", "-qq", "--no-install-recommends", "buildah"}} {
		apt := exec.CommandContext(ctx, "apt-get", args...)
		apt.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := apt.CombinedOutput(); err != nil {
			return "", fmt.Errorf("install buildah: apt-get %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return exec.LookPath("buildah")
}

// remove takes the store away; nothing is mounted in it.
func (b *buildah) remove() error { return os.RemoveAll(b.dir) }

func (b *buildah) buildah(ctx context.Context, args ...string) error {
	return b.run(exec.CommandContext(ctx, b.command[0], append(b.command[1:], args...)...))
}

func (b *buildah) run(command *exec.Cmd) error {
	command.Env = append(os.Environ(), "TMPDIR="+filepath.Join(b.dir, "tmp"))
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build the image: %s: %w\n%s", filepath.Base(command.Path), err, bytes.TrimSpace(out))
	}
	return nil
}

// build builds an image that runs nothing.
func (b *buildah) build(ctx context.Context, tree, recipe, name string) error {
	if err := os.WriteFile(filepath.Join(tree, "Dockerfile"), []byte(recipe), 0o600); err != nil {
		return err
	}
	return b.buildah(ctx, "build", "--quiet", "--isolation", "chroot", "--tag", name, tree)
}

func (b *buildah) makeBuilder(ctx context.Context) error {
	tree := filepath.Join(b.dir, "builder")
	root := filepath.Join(tree, "root")
	for _, dir := range []string{"usr", "goroot", "gocache", "gomod", "etc/ssl", "tmp", "root"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"bin", "lib", "lib64"} {
		target, err := os.Readlink("/" + dir)
		if err != nil {
			return fmt.Errorf("make the builder: this machine's /%s should lead to /usr: %w", dir, err)
		}
		if err := os.Symlink(target, filepath.Join(root, dir)); err != nil {
			return err
		}
	}
	return b.build(ctx, tree, builderFile, builder)
}

// flags give the build what it needs of the machine: tools, authorities, Go, its
// modules and where to get others, and what it has compiled: package product builds with
// the same flags. None of it comes into the image.
func (b *buildah) flags(ctx context.Context) ([]string, error) {
	settings, err := goEnv(ctx, "GOROOT", "GOMODCACHE", "GOCACHE", "GOPROXY", "GONOSUMDB")
	if err != nil {
		return nil, err
	}
	flags := []string{
		"--quiet", "--isolation", "chroot",
		"--build-arg", "BUILDER=" + builder,
		"--build-arg", "GOPROXY=file:///gomod/cache/download," + settings[3],
		"--volume", "/usr:/usr:ro", "--volume", "/etc/ssl:/etc/ssl:ro",
		"--volume", settings[0] + ":/goroot:ro",
		"--volume", settings[1] + ":/gomod", "--volume", settings[2] + ":/gocache",
	}
	if settings[4] != "" {
		flags = append(flags, "--build-arg", "GONOSUMDB="+settings[4])
	}
	return flags, nil
}

// goEnv asks Go for its settings.
func goEnv(ctx context.Context, names ...string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", append([]string{"env"}, names...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("ask go for %s: %w", strings.Join(names, ", "), err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n"), nil
}
