package chrome

import (
	"context"
	"errors"
	"os/exec"
	"testing"

	"leasehold/internal/procfs"
)

// TestAStopThatNobodySeesMayComeLater: what was told to stop is told from what was not.
func TestAStopThatNobodySeesMayComeLater(t *testing.T) {
	child := exec.Command("sleep", "600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := procfs.Read(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	n, err := openNetworkService(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if !n.AwaitEnd() { // from now on it never stops
		t.Fatal("it does not end")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Stop(ctx); !errors.Is(err, ErrStopping) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	_ = child.Wait() // it was killed
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if err := n.Stop(t.Context()); err == nil || errors.Is(err, ErrStopping) {
		t.Errorf("told to stop by nobody: %v", err)
	}
}

func TestAHelperSaysWhatItIs(t *testing.T) {
	for line, want := range map[string]bool{
		"/usr/bin/chromium --type=utility " + networkArgument + " --lang=en":               true, // as helpers write it
		"/usr/bin/chromium\x00--type=utility\x00" + networkArgument + "\x00--lang=en\x00":  true,
		"/usr/bin/chromium --type=utility " + networkArgument + "Other":                    false,
		"/usr/bin/chromium --type=utility --utility-sub-type=storage.mojom.StorageService": false,
		"/usr/bin/chromium --type=renderer":                                                false,
		"":                                                                                 false,
	} {
		if got := hasArgument([]byte(line), networkArgument); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}
