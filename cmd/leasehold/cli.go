package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"leasehold/internal/outlet"
)

type commands struct {
	Config configFile       `env:"LEASEHOLD_CONFIG" placeholder:"FILE" help:"YAML file with settings."`
	Built  kong.VersionFlag `name:"version" help:"Print the version."`

	Run        runCmd        `cmd:"" help:"Run the sidecar of this host."`
	Exec       execCmd       `cmd:"" help:"Lease a profile, run a command with it, and release it."`
	Mcp        mcpCmd        `cmd:"" help:"Serve tools to an AI agent (MCP): lease a profile, say what is done, ask a person; and a browser's tools with them."`
	Profiles   profileCmds   `cmd:"" help:"List the profiles and who holds them; create, import, clone or archive one."`
	Show       showCmd       `cmd:"" help:"Show one profile: its lease, its inspection, its last events."`
	Sessions   sessionsCmd   `cmd:"" help:"List the living sessions."`
	Queue      queueCmd      `cmd:"" help:"List the requests that wait for a lease, at all launchers."`
	Sites      sitesCmds     `cmd:"" help:"Show or change what is known of sites: which requests only read, which write."`
	Watch      watchCmd      `cmd:"" help:"Follow the events of all profiles or of one."`
	Evidence   evidenceCmds  `cmd:"" help:"List a profile's evidence, fetch a bundle, or verify what is stored."`
	Review     reviewCmd     `cmd:"" help:"Decide on a profile in manual review."`
	Hold       holdCmd       `cmd:"" help:"Use a profile by hand."`
	Take       takeCmd       `cmd:"" help:"Take a living session over from its worker, and hand it back."`
	Ask        askCmd        `cmd:"" help:"Ask for a person in the name of a session's worker, and wait."`
	Check      checkCmd      `cmd:"" help:"Find out whether a profile's account is signed in, by its session check."`
	SignIn     signInCmd     `cmd:"" help:"Make a link by which a person signs a profile's account in."`
	Token      tokenCmds     `cmd:"" help:"Make an API token for somebody who may use the sidecar."`
	Doctor     doctorCmd     `cmd:"" help:"Check what the sidecar needs on this host."`
	Version    versionCmd    `cmd:"" help:"Print the version."`
	Completion completionCmd `cmd:"" help:"Print what a shell needs to complete command lines."`
	Complete   completeCmd   `cmd:"" hidden:"" help:"Print how a command line can go on; the scripts of completion run it."`
	Man        manCmd        `cmd:"" hidden:"" help:"Write the manual pages."`
	Guard      guardCmd      `cmd:"" hidden:"" help:"Bound the life of a sidecar's browsers; the sidecar runs it."`
}

// app is what a command works with besides its flags.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	model          *kong.Node // the grammar of the command line
	config         string     // the path of the file of --config; empty if there is none
	outlets        []*outlet.Outlet
}

// printTimeout bounds how long a sidecar that ends waits for those who read what it prints.
const printTimeout = 2 * time.Second

// outlive makes the process go on when a reader of what it prints stalls or goes away: nobody
// waits for either. note is what the reader of the standard error is told about dropped lines.
// A panic is printed by the runtime itself, and does not come this way.
func (a *app) outlive(note func(dropped uint64) []byte) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // ignored, it would be ignored in child processes, too
	silent := func(uint64) []byte { return nil }
	stdout, stderr := outlet.New(a.stdout, silent), outlet.New(a.stderr, note)
	a.stdout, a.stderr, a.outlets = stdout, stderr, []*outlet.Outlet{stdout, stderr}
	stdlog.SetOutput(stderr) // net/http writes there
}

// dropped counts what was printed and never read.
func (a *app) dropped() (n uint64) {
	for _, o := range a.outlets {
		n += o.Dropped()
	}
	return n
}

// warn prints one line to the standard error, for the person at the terminal.
func (a *app) warn(format string, args ...any) {
	fmt.Fprintf(a.stderr, "leasehold: %s\n", printable(fmt.Sprintf(format, args...)))
}

// cli runs one command line and returns the exit code.
func cli(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	err := a.run(args)
	var e *exitError
	if err != nil && (!errors.As(err, &e) || e.err != nil) {
		a.warn("%v", err)
	}
	for _, o := range a.outlets {
		o.Close(printTimeout)
	}
	return exitCode(err)
}

// run parses the arguments and runs the command that they name.
func (a *app) run(args []string) error {
	var c commands
	helped := false
	parser, err := kong.New(&c,
		kong.Name("leasehold"),
		kong.Description("Leases of Chrome profiles: one owner at a time, fenced, with evidence before recovery."),
		kong.Writers(a.stdout, a.stderr),
		kong.ConfigureHelp(kong.HelpOptions{NoExpandSubcommands: true}),
		kong.Help(help),
		kong.Vars{"version": readBuildVersion().String()},
		kong.Exit(func(int) { helped = true }),
		kong.Bind(a),
	)
	if err != nil {
		return fmt.Errorf("command line grammar: %w", err)
	}
	a.model = parser.Model.Node
	parsed, err := parser.Parse(args)
	if helped {
		return nil
	}
	if err != nil {
		return usageError(err)
	}
	return parsed.Run()
}

// usageError adds to an error of kong which --help to read. Its exit code is exitUsage,
// whatever kong's would be.
func usageError(err error) error {
	what := "leasehold"
	if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context != nil {
		if node := parse.Context.Selected(); node != nil {
			what = node.FullPath()
		}
	}
	return exitWith(exitUsage, "%w (see %s --help)", err, what)
}

// help prints kong's help. For the whole program the exit codes follow.
func help(options kong.HelpOptions, ctx *kong.Context) error {
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	if ctx.Selected() == nil {
		_, err := fmt.Fprint(ctx.Stdout, "\n"+exitCodesHelp())
		return err
	}
	return nil
}

// hangup is SIGHUP, which is sent when a terminal is closed. It is empty if the process
// was started with the signal ignored, as nohup does.
func hangup() []os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return nil
	}
	return []os.Signal{syscall.SIGHUP}
}

// interruptible returns a context that SIGINT, SIGTERM or one of the further signals ends: its cause is an
// *interruptedError then. A second signal ends the process at once.
func interruptible(further ...os.Signal) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, append(further, os.Interrupt, syscall.SIGTERM)...)
	go func() {
		select {
		case s := <-signals:
			signal.Stop(signals)
			cancel(&interruptedError{s})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// interruptedError says that a signal ended what was going on.
type interruptedError struct{ signal os.Signal }

func (e *interruptedError) Error() string { return "interrupted (" + e.signal.String() + ")" }

// exitCode is that of a command which the signal ended before it was done.
func (e *interruptedError) exitCode() int { return exitSignal + signalNumber(e.signal) }
