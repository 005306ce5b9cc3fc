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

// process is a program that is started again whenever it ends by itself.
type process struct {
	name    string
	logFile string
	env     []string
	// command returns the command line. It is called at each start.
	command func() []string
	// pause is the time between its end and the next start.
	pause time.Duration
	// begin starts a command; nil: as it is.
	begin func(*exec.Cmd) error

	mu      sync.Mutex
	cmd     *exec.Cmd
	ended   chan struct{} // closed when the current process has ended
	wanted  bool
	exits   map[int]int // how often the program ended by itself, by exit status
	waiting sync.WaitGroup
	stop    chan struct{} // closed when it is never to be started again
}

// killTime is how long the end of a killed program may take on a busy machine.
const killTime = 60 * time.Second

func newProcess(name, logFile string, command func() []string) *process {
	return &process{name: name, logFile: logFile, command: command, pause: 300 * time.Millisecond, exits: map[int]int{}, stop: make(chan struct{})}
}

// start starts the program, and restarts it whenever it ends, until finish.
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
	begin := (*exec.Cmd).Start
	if p.begin != nil {
		begin = p.begin
	}
	if err := begin(cmd); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	p.cmd, p.ended = cmd, make(chan struct{})
	ended := p.ended
	p.waiting.Go(func() {
		_ = cmd.Wait() // the status is in ProcessState
		close(ended)
		p.restart(cmd)
	})
	return nil
}

// restart starts the program again, unless it is to stay down.
func (p *process) restart(ended *exec.Cmd) {
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
		_ = p.launch() // the readiness check notices a program that does not start
	}
}

// signal sends a signal to the running program.
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

// kill ends the program without warning. It stays down until start.
func (p *process) kill() error {
	p.mu.Lock()
	p.wanted = false
	p.mu.Unlock()
	return p.end(syscall.SIGKILL, killTime)
}

// drain asks the program to end. If it does not end within the limit, drain returns an
// error, makes the program print its goroutines, and kills it. It stays down until
// start.
func (p *process) drain(limit time.Duration) error {
	err := p.end(syscall.SIGTERM, limit)
	if err != nil && p.end(syscall.SIGQUIT, 5*time.Second) != nil {
		err = errors.Join(err, p.end(syscall.SIGKILL, killTime))
	}
	return err
}

// end sends the signal and waits for the program's end.
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

// finish drains the program, which is never started again.
func (p *process) finish(limit time.Duration) error {
	err := p.drain(limit)
	close(p.stop)
	p.waiting.Wait()
	return err
}

// status is the exit status of the last process, -1 if a signal ended it.
func (p *process) status() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.cmd.ProcessState == nil {
		return -1
	}
	return p.cmd.ProcessState.ExitCode()
}

// running tells whether finish was not called yet.
func (p *process) running() bool {
	select {
	case <-p.stop:
		return false
	default:
		return true
	}
}
