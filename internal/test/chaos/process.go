package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// process is a program that is to run until told otherwise: one that ends by
// itself is started again.
type process struct {
	name    string
	logFile string
	env     []string
	// command is asked at each start.
	command func() []string
	// pause is how long it stays down after it ended by itself.
	pause time.Duration

	mu      sync.Mutex
	cmd     *exec.Cmd
	ended   chan struct{} // of the running one
	wanted  bool
	exits   map[int]int // by status, of those that ended by themselves
	keepers sync.WaitGroup
	stop    chan struct{} // closed when it is to stay down for good
}

// killTime bounds the wait for the end of a killed program, on a busy machine.
const killTime = 60 * time.Second

func newProcess(name, logFile string, command func() []string) *process {
	return &process{name: name, logFile: logFile, command: command, pause: 300 * time.Millisecond, exits: map[int]int{}, stop: make(chan struct{})}
}

// start runs the program, and again whenever it ends, until finish.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended != nil {
		select {
		case <-p.ended:
		default:
			return fmt.Errorf("%s runs already", p.name)
		}
	}
	p.wanted = true
	return p.launch()
}

// launch is called with mu held.
func (p *process) launch() error {
	log, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := p.command()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	p.cmd, p.ended = cmd, make(chan struct{})
	ended := p.ended
	p.keepers.Go(func() {
		_ = cmd.Wait() // its status is in ProcessState
		close(ended)
		p.again(cmd)
	})
	return nil
}

// again starts the program anew if it is still wanted.
func (p *process) again(ended *exec.Cmd) {
	p.mu.Lock()
	wanted := p.wanted && p.cmd == ended
	if wanted {
		p.exits[ended.ProcessState.ExitCode()]++
	}
	p.mu.Unlock()
	if !wanted {
		return
	}
	select {
	case <-time.After(p.pause):
	case <-p.stop:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted && p.cmd == ended {
		_ = p.launch() // what it needs was there before: the readiness check tells
	}
}

// signal sends one to the running program.
func (p *process) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("%s was never started", p.name)
	}
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// kill ends the program without warning; it stays down until start.
func (p *process) kill() error {
	p.mu.Lock()
	p.wanted = false
	p.mu.Unlock()
	return p.end(syscall.SIGKILL, killTime)
}

// drain asks the program to end. Where it does not within the limit, which the
// error says, it has to print what it is at, and is killed. It stays down until
// start.
func (p *process) drain(limit time.Duration) error {
	err := p.end(syscall.SIGTERM, limit)
	if err != nil && p.end(syscall.SIGQUIT, 5*time.Second) != nil {
		err = errors.Join(err, p.end(syscall.SIGKILL, killTime))
	}
	return err
}

// end sends the signal and waits for the end.
func (p *process) end(s syscall.Signal, limit time.Duration) error {
	p.mu.Lock()
	p.wanted = false
	ended := p.ended
	p.mu.Unlock()
	if ended == nil {
		return nil
	}
	if err := p.signal(s); err != nil {
		return err
	}
	select {
	case <-ended:
		return nil
	case <-time.After(limit):
		return fmt.Errorf("%s still runs %v after %v", p.name, limit, s)
	}
}

// finish keeps the program down for good.
func (p *process) finish(limit time.Duration) error {
	err := p.drain(limit)
	close(p.stop)
	p.keepers.Wait()
	return err
}

// status is the exit status of the one that ended last; -1 after a signal.
func (p *process) status() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.cmd.ProcessState == nil {
		return -1
	}
	return p.cmd.ProcessState.ExitCode()
}

// running tells whether the program is to be stopped still.
func (p *process) running() bool {
	select {
	case <-p.stop:
		return false
	default:
		return true
	}
}
