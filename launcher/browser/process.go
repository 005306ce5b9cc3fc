package browser

import (
	"context"
	"io"
	"os/exec"

	"leasehold/cdpproxy"
	"leasehold/internal/cgroup"
	"leasehold/internal/procfs"
	"leasehold/launcher/chrome"
)

// Processes starts and finds the processes of browsers. Package chrome implements it; tests
// simulate it where no real process can run.
type Processes interface {
	// Start is chrome.Start.
	Start(ctx context.Context, o chrome.Options) (Process, error)
	// Adopt is chrome.Adopt, and Attach is chrome.Attach, with their errors.
	Adopt(id chrome.Identity, o chrome.AdoptOptions) (Process, error)
	Attach(id chrome.Identity, o chrome.AdoptOptions) (Process, error)
	// Version is what the binary says of itself.
	Version(ctx context.Context, binary string) (string, error)
	// Lives tells whether the very process lives.
	Lives(id chrome.Identity) bool
}

// Process is a browser's main process, with its helpers. Its methods are those of
// chrome.Browser. It has 20 methods because the whole of package chrome is behind it: below that, a
// simulation would have to imitate Chrome's tree of processes, its zygotes and their signals.
type Process interface {
	Identity() chrome.Identity
	TempDir() string
	Warnings() []string
	Group() *cgroup.Group
	Processes() ([]procfs.Process, error)
	Among(all []procfs.Process) []procfs.Process

	TakePipe() (commands, events int, err error)
	// TakeNetLog is our end of the NetLog's pipe; nil: there is none, and it is not known what pages
	// do not report themselves.
	TakeNetLog() io.ReadCloser
	// Waiting is how the pipe is waited for; nil: by the kernel.
	Waiting() cdpproxy.Waiting

	Exited() <-chan struct{}
	ExitStatus() string
	OutputTail(n int) string
	StartFailure(cause error) *chrome.StartError

	NetworkService() (NetworkService, error)
	StopRenderers() error
	ContinueRenderers() error
	KillRenderers(ctx context.Context) error
	AwaitStored(ctx context.Context) error

	Close(ctx context.Context, ask func(context.Context) error, bounds chrome.CloseTimeouts) (chrome.CloseMethod, error)
	Detach() error
}

// NetworkService is the process of a browser through which everything goes that it sends. Its
// methods are those of chrome.NetworkService. It has 9 methods because it is stopped, continued and
// ended apart from the browser, and each of these is waited for in its own way.
type NetworkService interface {
	PID() int
	AwaitRest(ctx context.Context) error
	Stop(ctx context.Context) error
	Stopped() (bool, error)
	Continue() error
	Kill(ctx context.Context) error
	AwaitEnd() (ended bool)
	Ended() bool
	Close() error
}

// Kernel are the processes of package chrome.
type Kernel struct{}

// Start is part of Processes.
func (Kernel) Start(ctx context.Context, o chrome.Options) (Process, error) {
	return ofKernel(chrome.Start(ctx, o))
}

// Adopt is part of Processes.
func (Kernel) Adopt(id chrome.Identity, o chrome.AdoptOptions) (Process, error) {
	return ofKernel(chrome.Adopt(id, o))
}

// Attach is part of Processes.
func (Kernel) Attach(id chrome.Identity, o chrome.AdoptOptions) (Process, error) {
	return ofKernel(chrome.Attach(id, o))
}

// Version is part of Processes.
func (Kernel) Version(ctx context.Context, binary string) (string, error) {
	out, err := exec.CommandContext(ctx, binary, "--version").Output()
	return string(out), err
}

// Lives is part of Processes.
func (Kernel) Lives(id chrome.Identity) bool {
	p, err := procfs.Read(id.PID)
	return err == nil && p.StartTime == id.StartTime && p.Alive()
}

type process struct{ *chrome.Browser }

func ofKernel(b *chrome.Browser, err error) (Process, error) {
	if err != nil {
		return nil, err
	}
	return process{b}, nil
}

// Waiting is part of Process.
func (process) Waiting() cdpproxy.Waiting { return nil }

// NetworkService is part of Process.
func (p process) NetworkService() (NetworkService, error) {
	n, err := p.Browser.NetworkService()
	if err != nil {
		return nil, err
	}
	return n, nil
}
