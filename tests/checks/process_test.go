package checks

import (
	"os"
	"os/exec"
	"testing"
)

func TestAProcessThatIsLeftOverIsFoundByItsMark(t *testing.T) {
	const entry = "SICKBAY_STACK_CHECK=left-over"
	child := exec.Command("cat")
	child.Env = append(os.Environ(), entry)
	input, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	left, err := Marked(entry)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0].PID != child.Process.Pid || left[0].Command != "cat" {
		t.Errorf("found %v, want cat with PID %d", left, child.Process.Pid)
	}
	if err := input.Close(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	if left, err = Marked(entry); err != nil || len(left) != 0 {
		t.Errorf("after its end found %v, %v; want nothing", left, err)
	}
}

func TestACallersOwnLineIsNotLeftOver(t *testing.T) {
	line, err := lineage(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if len(line) < 2 || line[0] != os.Getpid() || line[1] != os.Getppid() {
		t.Errorf("descends from %v, want from %d and %d", line, os.Getpid(), os.Getppid())
	}
}
