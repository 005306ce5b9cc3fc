package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"leasehold"
	"leasehold/launcher/agents"
	"leasehold/launcher/api"
)

type mcpCmd struct {
	clientFlags `embed:""`
	leaseFlags  `embed:""`

	Command []string `arg:"" optional:"" passthrough:"" help:"A browser's MCP server and its arguments, after --; {cdp_url} and {http_url} in them stand for the addresses of the leased browser."`
}

// Help is what leasehold mcp --help prints besides the flags.
func (c *mcpCmd) Help() string {
	return `An agent runs this command and speaks MCP with it over its standard streams. The tools:
list_profiles, lease_profile, release, step, checkpoint, ask_person and why. With --profile,
--label or --account the agent can lease no other profile.

With a command, such as

  leasehold mcp --profile shop_018 -- npx @playwright/mcp --cdp-endpoint {cdp_url}

that server's tools are served, too. If a profile is named by the flags it is leased at
once; if that is refused, the agent is told why, and can call lease_profile later.

When the agent ends without a release, the session is recovered as that of a lost worker.`
}

// Run serves one agent, until it ends, a signal comes, or the browser's server ends.
func (c *mcpCmd) Run(a *app) error {
	sidecar, err := c.client()
	if err != nil {
		return err
	}
	base, err := c.leaseFlags.manifest()
	named := base.ProfileID != "" || base.AnyProfile()
	if err == nil && named {
		err = base.Check()
	}
	if err != nil {
		return &exitError{exitUsage, err}
	}
	ctx, stop := interruptible(hangup()...)
	defer stop()

	options, instructions := agents.Options{Base: base}, agents.Instructions
	var browser *browserServer
	if len(c.Command) > 0 {
		if browser, err = newBrowserServer(a, c.Command); err != nil {
			return err
		}
		defer browser.stop()
		options.Granted, options.Gone = browser.start, browser.stop
	}
	agent := agents.New(sidecar, options)
	if browser != nil {
		browser.agent = agent
		if err := browser.first(ctx, named); err != nil {
			return errors.Join(err, agent.End(api.Release{}))
		}
		instructions += "\n\n" + browser.instructions
	}
	server := agents.NewServer(leasehold.Version, instructions, func(*sdk.ServerSession) *agents.Agent { return agent })
	if browser != nil {
		browser.offer(server)
	}
	how, err := c.serve(ctx, a, server, browser)
	return errors.Join(err, agent.End(how))
}

// serve talks with the agent. It returns when the agent or the browser's server has ended, or ctx
// ends; how says how the sessions that are left then end.
func (c *mcpCmd) serve(ctx context.Context, a *app, server *sdk.Server, browser *browserServer) (how api.Release, err error) {
	input := &inputEnd{Reader: a.stdin, ended: make(chan struct{})}
	session, err := server.Connect(ctx, &sdk.IOTransport{Reader: input, Writer: notClosed{a.stdout}}, nil)
	if err != nil {
		return how, err
	}
	// It may wait for an agent that reads nothing, and then ends with this process.
	closed := make(chan error, 1)
	go func() { closed <- session.Wait() }()
	var died <-chan *os.ProcessState
	if browser != nil {
		died = browser.died
	}
	select {
	case <-ctx.Done():
	case <-input.ended:
	case err := <-closed:
		if err != nil && !errors.Is(err, io.EOF) {
			return how, exitWith(exitFailure, "the agent sent something that is not MCP: %w", err)
		}
	case status := <-died:
		code, text := exitFailure, "it cannot be waited for"
		how.Recover = api.RecoverTouched
		if status != nil {
			code, text = statusCode(status), status.String()
			if w, ok := status.Sys().(syscall.WaitStatus); ok && w.Signaled() {
				how.Recover = api.RecoverAlways
			}
		}
		how.Outcome, how.Reason = outcomeFailed, "the browser's MCP server ended: "+text
		return how, exitWith(code, "%s: %s", c.Command[0], text)
	}
	return how, nil
}

// inputEnd is an input that tells its end, whatever has been read of it by then.
type inputEnd struct {
	io.Reader
	once  sync.Once
	ended chan struct{}
}

func (i *inputEnd) Read(p []byte) (int, error) {
	n, err := i.Reader.Read(p)
	if err != nil {
		i.once.Do(func() { close(i.ended) })
	}
	return n, err
}

func (i *inputEnd) Close() error { return nil }

// notClosed is an output that stays open.
type notClosed struct{ io.Writer }

func (notClosed) Close() error { return nil }

// httpURL is where a client can ask for the browser's websocket, which is at cdpURL.
func httpURL(cdpURL string) string {
	base, _, _ := strings.Cut(cdpURL, "/devtools/browser/")
	return strings.Replace(base, "ws", "http", 1)
}

func (b *browserServer) command(cdpURL string) *exec.Cmd {
	filled := strings.NewReplacer("{cdp_url}", cdpURL, "{http_url}", httpURL(cdpURL))
	args := make([]string, len(b.argv)-1)
	for i, arg := range b.argv[1:] {
		args[i] = filled.Replace(arg)
	}
	cmd := exec.Command(b.path, args...)
	cmd.Stderr = b.app.stderr
	return cmd
}
