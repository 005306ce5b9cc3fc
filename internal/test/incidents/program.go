package incidents

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"leasehold/internal/test/clients"
)

// program is a worker that runs as a process of its own. It reads actions from its
// standard input, and prints a line after each.
type program struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan clients.Line // closed when the program has ended
	done   chan struct{}
	stderr bytes.Buffer // complete when done is closed
	bare   bool
}

// start starts a program and waits until it is connected.
func start(ctx context.Context, name string, d door) (*program, error) {
	address := d.socket
	if keepsHostAndPort(name) {
		address = d.hostPort
	}
	cmd := exec.Command("node", "--require", clients.CodeCache(), filepath.Join(clients.Dir(), "incidents", name+".mjs"), address, clients.Interactive)
	// It has a process group of its own, since chromedriver has to die with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p := &program{cmd: cmd, lines: make(chan clients.Line, 64), done: make(chan struct{}), bare: d.bare}
	p.cmd.Stderr = &p.stderr
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error, 1)
	go p.run(stdout, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w: run \"make deps\"", name, err)
	}
	if err := p.answer(ctx, "connect"); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

// run starts the process and reads its output to the end. The parent-death signal is
// sent when the thread that started the process ends, so this goroutine keeps its
// thread.
func (p *program) run(stdout io.Reader, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	defer close(p.lines)
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	scanner := bufio.NewScanner(stdout)
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		var line clients.Line
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			line = clients.Line{Action: "stdout", Error: scanner.Text()}
		}
		select {
		case p.lines <- line:
		default: // nobody reads any more
		}
	}
	_ = p.cmd.Wait() // it was killed
}

// answer waits for the line of an action.
func (p *program) answer(ctx context.Context, action string) error {
	select {
	case line, ok := <-p.lines:
		switch {
		case !ok:
			<-p.done
			return fmt.Errorf("%s: the program ended: %s", action, p.stderr.String())
		case !line.OK || line.Action != action:
			return fmt.Errorf("%s: got %s: %s", action, line.Action, line.Error)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", action, ctx.Err())
	}
}

// kill kills the program and its driver by SIGKILL.
func (p *program) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	<-p.done
}

func (p *program) do(ctx context.Context, s *site, a Action) error {
	order, err := p.order(s, a)
	if err != nil || order == nil {
		return err
	}
	b, err := json.Marshal(order)
	if err != nil {
		return err
	}
	if _, err := p.stdin.Write(append(b, '\n')); err != nil {
		return err
	}
	return p.answer(ctx, order["action"].(string))
}

// order is an action as the scripts read it. It is nil if there is nothing to do.
func (p *program) order(s *site, a Action) (clients.Action, error) {
	for name, address := range map[string]string{
		"goto": a.Goto, "open": a.Open, "switch": a.Switch, "apart": a.Apart, "dispose": a.Dispose, "close": a.Close,
	} {
		if address != "" {
			return clients.Action{"action": name, "url": s.url(address)}, nil
		}
	}
	for name, selector := range map[string]string{"click": a.Click, "aside": a.Aside} {
		if selector != "" {
			return clients.Action{"action": name, "selector": selector, "patient": s.app != nil}, nil
		}
	}
	for name, text := range map[string]string{
		"type": a.Type, "press": a.Press, "scroll": a.Scroll, "see": a.See, "dialog": a.Dialog, "accept": a.Accept,
	} {
		if text != "" {
			return clients.Action{"action": name, "text": text}, nil
		}
	}
	switch {
	case a.Fill != nil:
		return clients.Action{"action": "fill", "selector": a.Fill.Field, "text": a.Fill.Text}, nil
	case a.Run != "":
		return clients.Action{"action": "run", "expression": s.ported(a.Run)}, nil
	case a.CDP != nil:
		return clients.Action{"action": "cdp", "method": a.CDP.Method, "params": a.CDP.params(s)}, nil
	case a.Attach != "":
		path, err := smallFile()
		return clients.Action{"action": "attach", "selector": a.Attach, "path": path}, err
	case a.Beside != "":
		method, path, _ := strings.Cut(a.Beside, " ")
		return clients.Action{"action": "beside", "method": method, "url": s.url(path)}, nil
	case a.Step != nil && !p.bare:
		return clients.Action{"action": "cdp", "method": "Lease.step", "params": a.Step}, nil
	case a.Checkpoint != nil && !p.bare:
		return clients.Action{"action": "cdp", "method": "Lease.checkpoint", "params": a.Checkpoint}, nil
	}
	return nil, nil
}

// params are the parameters of a command, with the site's port in their URLs.
func (c Command) params(s *site) map[string]any {
	b, err := json.Marshal(c.Params)
	if err != nil {
		return c.Params
	}
	var ported map[string]any
	if json.Unmarshal([]byte(s.ported(string(b))), &ported) != nil || ported == nil {
		return map[string]any{}
	}
	return ported
}

// smallFile returns the path of a file to upload: the clients' package.json.
func smallFile() (string, error) {
	path := filepath.Join(clients.Dir(), "package.json")
	_, err := os.Stat(path)
	return path, err
}
