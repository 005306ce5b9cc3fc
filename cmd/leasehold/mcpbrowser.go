package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"leasehold"
	"leasehold/launcher/agents"
	"leasehold/launcher/api"
)

// browserServer runs a browser's MCP server below the agent's lease: one process for each lease. The
// process gets the address of the browser when it starts, so that it ends with the lease.
type browserServer struct {
	app          *app
	path         string
	argv         []string
	agent        *agents.Agent
	instructions string
	// died receives how the process ended, if it was not ended from here.
	died chan *os.ProcessState

	mu    sync.Mutex
	now   *browserProcess // nil: none
	tools []*sdk.Tool     // as the first process had them
}

type browserProcess struct {
	session *sdk.ClientSession
	cmd     *exec.Cmd
	ctx     context.Context // of the calls; ends when the process is to end
	cancel  context.CancelFunc
	ended   chan struct{}
}

// browserStartTimeout bounds the start of a browser's server, which may have to be downloaded first.
const browserStartTimeout = 3 * time.Minute

// noBrowser is the address that a process gets that is started for the names of its tools only.
const noBrowser = "ws://127.0.0.1:9/no-profile-is-leased/devtools/browser/none"

func newBrowserServer(a *app, argv []string) (*browserServer, error) {
	if argv[0] == "--" {
		argv = argv[1:]
	}
	if len(argv) == 0 {
		return nil, exitWith(exitUsage, "which command? want leasehold mcp --profile P -- CMD")
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, cannotRun(err)
	}
	return &browserServer{app: a, path: path, argv: argv, died: make(chan *os.ProcessState, 1)}, nil
}

// first finds out which tools the browser's server has. If a profile is named, it is leased, and
// the process is that of the lease. If it cannot be leased now, a process without a browser tells.
func (b *browserServer) first(ctx context.Context, named bool) error {
	if named {
		err := b.agent.Lease(ctx)
		var refused *api.Problem
		if err == nil || !errors.As(err, &refused) {
			return err
		}
		b.app.warn("%v", err)
	}
	if err := b.run(ctx, noBrowser); err != nil {
		return err
	}
	b.stop()
	return nil
}

func (b *browserServer) start(ctx context.Context, s api.Session) error {
	b.stop()
	return b.run(ctx, s.CDPURL)
}

// run starts a process for a browser, and asks for its tools.
func (b *browserServer) run(ctx context.Context, cdpURL string) error {
	ctx, cancel := context.WithTimeout(ctx, browserStartTimeout)
	defer cancel()
	client := sdk.NewClient(&sdk.Implementation{Name: "leasehold", Version: leasehold.Version}, &sdk.ClientOptions{Capabilities: &sdk.ClientCapabilities{}})
	p := &browserProcess{cmd: b.command(cdpURL), ended: make(chan struct{})}
	var err error
	if p.session, err = client.Connect(ctx, &sdk.CommandTransport{Command: p.cmd}, nil); err != nil {
		return exitWith(exitCannotRun, "%s is not an MCP server that can be used: %w", b.argv[0], err)
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	var tools []*sdk.Tool
	for t, err := range p.session.Tools(ctx, nil) {
		if err == nil {
			err = usable(t)
		}
		if err != nil {
			p.end()
			return exitWith(exitCannotRun, "tools of %s: %w", b.argv[0], err)
		}
		tools = append(tools, t)
	}
	b.mu.Lock()
	b.now = p
	if b.tools == nil {
		b.tools, b.instructions = tools, p.session.InitializeResult().Instructions
	}
	b.mu.Unlock()
	go func() {
		defer close(p.ended)
		_ = p.session.Wait() // how the process ended says it better
		if p.ctx.Err() == nil {
			b.died <- p.cmd.ProcessState
		}
	}()
	return nil
}

// usable refuses a tool that cannot be served beside the agent's own.
func usable(t *sdk.Tool) error {
	schema, _ := t.InputSchema.(map[string]any)
	switch {
	case agents.Has(t.Name):
		return fmt.Errorf("%s is a tool of leasehold itself, too: start the server with another prefix for its tools", t.Name)
	case schema["type"] != "object":
		return fmt.Errorf("%s has no schema of an object for its arguments", t.Name)
	}
	return nil
}

// end ends the process: its input is closed, and if that does not do it, it gets SIGTERM and then
// SIGKILL.
func (p *browserProcess) end() {
	p.cancel()
	_ = p.session.Close() // a process that has ended is no error here
}

// stop ends the process, if there is one, and waits for its end.
func (b *browserServer) stop() {
	b.mu.Lock()
	p := b.now
	b.now = nil
	b.mu.Unlock()
	if p != nil {
		p.end()
		<-p.ended
	}
}

// offer adds the tools to those of the agent's server.
func (b *browserServer) offer(server *sdk.Server) {
	for _, t := range b.tools {
		server.AddTool(t, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			result, err := b.call(ctx, r)
			if err != nil {
				result = b.agent.Refuse(t.Name, err)
				if t.OutputSchema != nil { // a client may compare the refusal with it
					result.StructuredContent = nil
				}
			}
			return result, nil
		})
	}
}

// call passes a call on to the process, while the agent has its lease.
func (b *browserServer) call(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	if err := b.agent.Usable(ctx); err != nil {
		return nil, err
	}
	b.mu.Lock()
	p := b.now
	b.mu.Unlock()
	if p == nil {
		return nil, fmt.Errorf("%s is not running", b.argv[0])
	}
	called, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	in := &sdk.CallToolParams{Name: r.Params.Name}
	if given := string(r.Params.Arguments); given != "" && given != "null" { // some servers refuse null
		in.Arguments = r.Params.Arguments
	}
	result, err := p.session.CallTool(called, in)
	if err == nil && !result.IsError {
		return result, nil
	}
	if lost := b.agent.Usable(ctx); lost != nil { // which is why it failed
		return nil, lost
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.argv[0], err)
	}
	return result, nil
}
