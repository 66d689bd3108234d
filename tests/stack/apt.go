package stack

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// install installs one of Debian's packages, for a part that isn't built from a Go
// module.
func install(ctx context.Context, progress io.Writer, debian string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%s is not installed: run `apt-get install %s` as root", debian, debian)
	}
	if progress == nil {
		progress = os.Stderr
	}
	fmt.Fprintf(progress, "stack: installing %s with apt-get\n", debian)
	try := func() ([]byte, error) {
		cmd := exec.CommandContext(ctx, "apt-get", "install", "-y", "--no-install-recommends", debian)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		return cmd.CombinedOutput()
	}
	output, err := try()
	if err != nil {
		// A machine that never updated its package lists can't find anything.
		if update, updateErr := exec.CommandContext(ctx, "apt-get", "update").CombinedOutput(); updateErr != nil {
			return fmt.Errorf("install %s: apt-get update: %w\n%s", debian, updateErr, update)
		}
		output, err = try()
	}
	if err != nil {
		return fmt.Errorf("install %s: %w\n%s", debian, err, output)
	}
	return nil
}
