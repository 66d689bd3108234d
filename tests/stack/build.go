package stack

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// CacheVariable names the environment variable with the folder for binaries.
const CacheVariable = "SICKBAY_STACK_CACHE"

// progressEvery is how often a running build says that it is still running.
const progressEvery = 30 * time.Second

// Binaries are the paths of parts that exist.
type Binaries map[Part]string

// Build makes sure that the parts exist and returns their paths. What is cached
// is not built again; what is missing is built one after the other, because two
// such builds side by side need more memory than a small machine has. Another
// process that builds the same part is waited for.
//
// Progress lines go to the writer (nil: os.Stderr). A failed build's error
// holds what the compiler said.
func Build(ctx context.Context, progress io.Writer, parts ...Part) (Binaries, error) {
	b, err := newBuilder(progress)
	if err != nil {
		return nil, err
	}
	binaries := Binaries{}
	var missing []Part
	for _, part := range parts {
		binary, err := b.binary(part)
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(binary); err != nil && !slices.Contains(missing, part) {
			missing = append(missing, part)
		}
		binaries[part] = binary
	}
	start := time.Now()
	for i, part := range missing {
		step := fmt.Sprintf("[%d/%d] %s", i+1, len(missing), part)
		if err := b.buildOnce(ctx, step, part, binaries[part]); err != nil {
			return nil, err
		}
	}
	if len(missing) > 0 {
		b.say("all %d parts are there after %s, in %s", len(missing), elapsed(start), b.cache)
	}
	return binaries, nil
}

// builder builds parts from their modules into a cache.
type builder struct {
	modules  string // tests/parts
	cache    string
	progress io.Writer
}

func newBuilder(progress io.Writer) (*builder, error) {
	modules, err := findModules()
	if err != nil {
		return nil, err
	}
	cache := os.Getenv(CacheVariable)
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("no place to cache the stack's binaries: %w; set %s", err, CacheVariable)
		}
		cache = filepath.Join(user, "sickbay", "stack")
	}
	if cache, err = filepath.Abs(cache); err != nil {
		return nil, err
	}
	if progress == nil {
		progress = os.Stderr
	}
	return &builder{modules: modules, cache: cache, progress: progress}, nil
}

// findModules looks for tests/parts from the working directory upwards, which
// for a test is its package's folder.
func findModules() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		for _, candidate := range []string{filepath.Join(dir, "parts"), filepath.Join(dir, "tests", "parts")} {
			if _, err := os.Stat(filepath.Join(candidate, "temporal", "go.mod")); err == nil {
				return candidate, nil
			}
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no tests/parts in %s or above: run from inside the repository", start)
		}
	}
}

// binary is where the part lies in the cache, built or not:
// <cache>/<module>/<program>-<key>/<program>, so that the program keeps its own
// name (containerd finds its shim by name).
func (b *builder) binary(part Part) (string, error) {
	how, err := recipeFor(part)
	if err != nil {
		return "", err
	}
	key := sha256.New()
	fmt.Fprintf(key, "%+v %s %s/%s\n", how, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if how.version == "" {
		if err := hashModule(key, filepath.Join(b.modules, part.module())); err != nil {
			return "", fmt.Errorf("part %s: %w", part, err)
		}
	}
	name := part.program() + "-" + hex.EncodeToString(key.Sum(nil))[:12]
	return filepath.Join(b.cache, part.module(), name, part.program()), nil
}

// hashModule adds everything of a module that can change what is built.
func hashModule(key io.Writer, module string) error {
	entries, err := os.ReadDir(module)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		if name != "go.mod" && name != "go.sum" && !strings.HasSuffix(name, ".go") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(key, "%s %x\n", name, sha256.Sum256(content))
	}
	return nil
}

// buildOnce builds the part unless another process just did.
func (b *builder) buildOnce(ctx context.Context, step string, part Part, binary string) error {
	lockDir := filepath.Dir(filepath.Dir(binary))
	if err := os.MkdirAll(lockDir, 0o755); err != nil {
		return fmt.Errorf("make the cache for %s: %w", part, err)
	}
	start := time.Now()
	lock, err := lockFile(ctx, filepath.Join(lockDir, part.program()+".lock"), func() {
		b.say("%s: waiting for another process that builds it … %s", step, elapsed(start))
	})
	if err != nil {
		return fmt.Errorf("wait for the build of %s: %w", part, err)
	}
	defer lock.unlock()
	if _, err := os.Stat(binary); err == nil {
		return nil
	}

	b.say("%s: building", step)
	work, err := os.MkdirTemp(lockDir, ".building-")
	if err != nil {
		return fmt.Errorf("make room for the build of %s: %w", part, err)
	}
	defer os.RemoveAll(work)
	if err := b.compile(ctx, step, part, work); err != nil {
		return err
	}
	built := filepath.Join(work, part.program())
	info, err := os.Stat(built)
	if err != nil {
		return fmt.Errorf("part %s: the build left no binary: %w", part, err)
	}
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return fmt.Errorf("put %s into the cache: %w", part, err)
	}
	if err := os.Rename(built, binary); err != nil {
		return fmt.Errorf("put %s into the cache: %w", part, err)
	}
	b.say("%s: built in %s, %d MB", step, elapsed(start), info.Size()/1_000_000)
	return nil
}

// compile runs the go command, with the binary landing in out.
func (b *builder) compile(ctx context.Context, step string, part Part, out string) error {
	how, err := recipeFor(part)
	if err != nil {
		return err
	}
	args := []string{"build", "-mod=readonly", "-o", filepath.Join(out, part.program())}
	dir := filepath.Join(b.modules, part.module())
	if how.version != "" {
		args, dir = []string{"install"}, out
	}
	args = append(args, "-trimpath", "-ldflags", how.ldflags)
	if how.tags != "" {
		args = append(args, "-tags", how.tags)
	}
	if how.version != "" {
		args = append(args, how.pkg+"@"+how.version)
	} else {
		args = append(args, how.pkg)
	}

	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = &output, &output
	// Without cgo no C compiler is needed and the binaries run anywhere.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOBIN="+out, "PWD="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second

	start := time.Now()
	finished := make(chan error, 1)
	go func() {
		// The parent-death signal belongs to the thread that forks: keep it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		finished <- cmd.Run()
	}()
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for {
		select {
		case err := <-finished:
			switch {
			case err == nil:
				return nil
			case ctx.Err() != nil:
				return fmt.Errorf("build %s: given up after %s: %w", part, elapsed(start), context.Cause(ctx))
			case errors.Is(err, exec.ErrNotFound):
				return fmt.Errorf("build %s: the go command is not in PATH: %w", part, err)
			}
			return fmt.Errorf("build %s: go %s: %w\n%s", part, strings.Join(args, " "), err, strings.TrimSpace(output.String()))
		case <-ticker.C:
			b.say("%s: still building … %s", step, elapsed(start))
		}
	}
}

func (b *builder) say(format string, args ...any) {
	fmt.Fprintf(b.progress, "stack: "+format+"\n", args...)
}

// elapsed is a duration since start in a form for people: 42s, 2m30s.
func elapsed(start time.Time) time.Duration { return time.Since(start).Round(time.Second) }

// lock is a held advisory lock on a file. The kernel drops it when the process
// dies, however it dies.
type lock struct{ file *os.File }

// lockFile takes the lock, trying again until ctx ends. waiting is called about
// every progressEvery while somebody else holds it.
func lockFile(ctx context.Context, path string, waiting func()) (*lock, error) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	said := time.Time{}
	for {
		held, err := tryLock(path)
		if held != nil || err != nil {
			return held, err
		}
		if time.Since(said) > progressEvery {
			waiting()
			said = time.Now()
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// tryLock takes the lock if it is free and returns nil if it is not.
func tryLock(path string) (*lock, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o666)
	if errors.Is(err, fs.ErrPermission) {
		return nil, nil // somebody else's file: theirs to use
	}
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &lock{file: file}, nil
}

func (l *lock) unlock() { l.file.Close() }
