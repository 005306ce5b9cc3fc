package docs

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"leasehold/internal/test/built"
	"leasehold/internal/test/clients"
	"leasehold/internal/test/failed"
	"leasehold/internal/test/freeport"
	"leasehold/internal/test/source"
	"leasehold/launcher/chrome"
)

var (
	root   string // of the repository
	binary string // the leasehold of this tree
)

func TestMain(m *testing.M) {
	code, err := build(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func build(m *testing.M) (_ int, err error) {
	if root, err = filepath.Abs(filepath.Join("..", "..", "..")); err != nil {
		return 1, err
	}
	if binary, err = built.Leasehold(); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// patience bounds each command, and the wait for what a page says will be.
const patience = 2 * time.Minute

// mustRun are pages of which blocks have to be run: a mark that is lost there, or a
// reason that is handed out freely, is noticed.
var mustRun = map[string]int{
	"README.md": 5, "docs/getting-started.md": 13, "docs/clients.md": 2, "docs/nats.md": 2, "docs/runbook.md": 3,
	"docs/configuration.md": 2, "docs/access.md": 2, "docs/person.md": 1, "docs/recovery.md": 1, "docs/proxies.md": 1,
	"docs/evidence.md": 3, "docs/lab/comparison.md": 2, "docs/browsers.md": 2, "docs/problems.md": 1,
	"docs/routing.md": 5, "docs/sites.md": 4, "docs/travel.md": 4, "docs/metrics.md": 1, "docs/examples/README.md": 4,
}

// TestPages runs the blocks of every page.
func TestPages(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	tests := testsOfTree(t)
	all := pages(t)
	for page := range mustRun {
		if all[page] == "" {
			t.Errorf("there is no page %s", page)
		}
	}
	for name, text := range all {
		short := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(name, "/README.md"), "docs/"), ".md")
		t.Run(short, func(t *testing.T) {
			t.Parallel()
			all := blocks(name, text)
			p := &page{t: t, serves: slices.ContainsFunc(all, func(b block) bool {
				return b.mark == "run: server" && strings.Contains(b.text, "leasehold run")
			})}
			ran := 0
			for _, b := range all {
				v, err := b.read()
				if err != nil {
					t.Errorf("%s: %v", b, err)
					continue
				}
				exists(t, b, b.text, string(makefile))
				switch v.kind {
				case "not":
					t.Logf("%s: not run: %s", b, reasons[v.arg])
					continue
				case "by":
					if !tests[v.arg] {
						t.Errorf("%s: there is no test %s", b, v.arg)
					}
					continue
				default:
					p.play(b, v)
				}
				ran++
				if t.Failed() {
					t.Logf("%s: the page ends here", b)
					break
				}
			}
			if ran < mustRun[name] {
				t.Errorf("%d blocks of %s are run, want %d: see mustRun", ran, name, mustRun[name])
			}
			t.Logf("%s: %d blocks run", name, ran)
		})
	}
}

// testsOfTree are the names of the tests of this repository.
func testsOfTree(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	err := source.Walk("_test.go", func(_ string, content []byte) error {
		for line := range strings.Lines(string(content)) {
			if rest, ok := strings.CutPrefix(line, "func Test"); ok {
				name, _, _ := strings.Cut(rest, "(")
				all["Test"+name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// page is what the blocks of one page share.
type page struct {
	t      *testing.T
	dir    string // where they run; empty before the first of them
	ports  *strings.Replacer
	env    []string
	serves bool   // the page starts its sidecar itself
	stop   func() // ends the sidecar; nil: none was started
}

// open makes the directory of the page, and finds ports for it.
func (p *page) open() {
	t := p.t
	t.Helper()
	if p.dir != "" {
		return
	}
	var err error
	if p.dir, err = filepath.EvalSymlinks(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Join(p.dir, "bin"), 0o700))
	must(os.Mkdir(filepath.Join(p.dir, "home"), 0o700))
	must(os.Symlink(binary, filepath.Join(p.dir, "bin", "leasehold")))
	// The go command is run in the repository, where the module is.
	must(os.WriteFile(filepath.Join(p.dir, "bin", "go"), fmt.Appendf(nil, "#!/bin/sh\nPATH=${PATH#*:}\ncd %s && exec go \"$@\"\n", root), 0o700))
	for _, language := range []string{"go", "javascript", "python"} {
		files, err := filepath.Glob(filepath.Join(root, "docs", "examples", language, "*.*"))
		must(err)
		to := filepath.Join(p.dir, "docs", "examples", language)
		must(os.MkdirAll(to, 0o700))
		for _, file := range files {
			text, err := os.ReadFile(file)
			must(err)
			must(os.WriteFile(filepath.Join(to, filepath.Base(file)), text, 0o600))
		}
	}
	must(os.Symlink(filepath.Join(clients.Dir(), "node_modules"), filepath.Join(p.dir, "node_modules")))
	p.makeKeys()
	must(os.Mkdir(filepath.Join(p.dir, "home", ".config"), 0o700))
	var free []string
	for _, port := range freeport.Take(t, 3) {
		free = append(free, strconv.Itoa(port))
	}
	p.ports = strings.NewReplacer(":9333", ":"+free[0], ":4333", ":"+free[1], ":8080", ":"+free[2])
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "LEASEHOLD_") && !strings.HasPrefix(variable, "XDG_") {
			p.env = append(p.env, variable)
		}
	}
	home, err := os.UserHomeDir()
	must(err)
	browser, err := chrome.Find("")
	must(err)
	p.env = append(p.env,
		"CHROME="+browser, // for the example that starts one itself
		"HOME="+filepath.Join(p.dir, "home"), "USER=ana", "PATH="+filepath.Join(p.dir, "bin")+":"+os.Getenv("PATH"),
		"LEASEHOLD_LISTEN=127.0.0.1:"+free[0], "LEASEHOLD_NATS_LISTEN=127.0.0.1:"+free[1], "LEASEHOLD_URL=http://127.0.0.1:"+free[0],
		"LEASEHOLD_EVENTS_URL=nats://127.0.0.1:"+free[1], "LEASEHOLD_COOLDOWN=0s", "LEASEHOLD_RECONNECT_GRACE=1s", "PORT="+free[2],
		"NODE_OPTIONS=--require "+strconv.Quote(clients.CodeCache()),
		"LEASEHOLD_IMPORT_ROOT="+filepath.Join(p.dir, "home", ".config"), // as a page says beside the command
		// The go command keeps what it built, and what it downloaded, where it always does.
		"GOCACHE="+goEnv(t, "GOCACHE"), "GOMODCACHE="+goEnv(t, "GOMODCACHE"), "GOPATH="+filepath.Join(home, "go"), "GOFLAGS="+os.Getenv("GOFLAGS"),
	)
}

// makeKeys makes the key and the certificates that pages name: cert.pem, with its key in
// key.pem, signs itself, and so is its own authority.
func (p *page) makeKeys() {
	t := p.t
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "browsers.example.com"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, DNSNames: []string{"browsers.example.com"},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, content := range map[string][]byte{
		"cert.pem": certificate, "ca.pem": certificate, "proxies-ca.pem": certificate,
		"key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	} {
		if err := os.WriteFile(filepath.Join(p.dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// play runs one block.
func (p *page) play(b block, v verdict) {
	t := p.t
	t.Helper()
	p.open()
	if v.kind == "of" {
		file, err := os.ReadFile(filepath.Join(root, v.arg))
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		want := append([]string{"..."}, strings.Split(strings.TrimRight(b.text, "\n"), "\n")...)
		if !matches(append(want, "..."), strings.Split(string(file), "\n")) {
			t.Errorf("%s: it is not in %s", b, v.arg)
		}
		return
	}
	b.text = p.ports.Replace(b.text)
	if v.kind == "as" {
		if err := os.WriteFile(filepath.Join(p.dir, filepath.Base(v.arg)), []byte(b.text), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if v.kind == "server" {
		p.serve(b)
		return
	}
	if p.stop == nil && !p.serves {
		p.serve(block{page: b.page, line: b.line, text: p.ports.Replace("$ leasehold run\nleasehold is ready at http://127.0.0.1:9333 ...\n...\n")})
		// Snippets follow each other on one profile. A browser that stays open between them
		// saves a second of processor time each.
		p.succeed(b, "leasehold", "profiles", "create", "shop_018", "--keep-warm")
	}
	started := time.Now()
	before, after := "", ""
	language := v.arg
	if v.kind == "in" {
		frame, err := os.ReadFile(filepath.Join("testdata", "frames", v.arg))
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		var found bool
		if before, after, found = strings.Cut(p.ports.Replace(string(frame)), "the snippet\n"); !found {
			t.Fatalf("%s: testdata/frames/%s has no line with \"the snippet\"", b, v.arg)
		}
		language = strings.TrimPrefix(filepath.Ext(v.arg), ".")
		if b.language == "console" {
			language = b.language
		}
	}
	file := filepath.Join(p.dir, fmt.Sprintf("line-%d.%s", b.line, language))
	program := before + "\n" + b.text + after
	write := func(name string) string {
		if err := os.WriteFile(name, []byte(program), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	switch language {
	case "console":
		if before != "" {
			p.succeed(b, "bash", "-euc", before)
		}
		p.console(b)
		if after != "" {
			p.succeed(b, "bash", "-euc", after)
		}
	case "sh":
		p.succeed(b, "bash", "-eu", write(file))
	case "python", "py":
		p.succeed(b, "python3", write(file))
	case "mjs":
		p.succeed(b, "node", write(file))
	case "go":
		// It has to lie in the module to find its libraries.
		dir, err := os.MkdirTemp(".", ".block-")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		if dir, err = filepath.Abs(dir); err != nil {
			t.Fatal(err)
		}
		write(filepath.Join(dir, "main.go"))
		p.succeed(b, "go", "run", dir)
	default:
		t.Fatalf("%s: nothing here runs %s", b, v.arg)
	}
	t.Logf("%s: run in %v", b, time.Since(started).Round(10*time.Millisecond))
}

// run runs a program to its end, and returns what it printed and its exit status.
func (p *page) run(name string, args ...string) (string, int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = p.dir, p.env
	cmd.WaitDelay = patience // for what it left in the background
	if own := filepath.Join(p.dir, "bin", name); name == "go" || name == "leasehold" {
		cmd.Path, cmd.Err = own, nil
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		p.t.Errorf("%s %v: %v\n%s", name, args, err, out)
	}
	status := cmd.ProcessState.ExitCode()
	if w, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		status = 128 + int(w.Signal()) // as a shell says it
	}
	return string(out), status
}

func (p *page) succeed(b block, name string, args ...string) {
	p.t.Helper()
	if out, status := p.run(name, args...); status != 0 {
		p.t.Errorf("%s: exit status %d:\n%s\n%s", b, status, b.text, out)
	} else if out != "" {
		p.t.Logf("%s: printed\n%s", b, strings.TrimRight(out, "\n"))
	}
}

// looks are commands that change nothing, and are repeated until they print what the page
// shows.
var looks = []string{"leasehold profiles", "leasehold show", "leasehold sessions", "leasehold evidence"}

// console runs the commands of a console block and compares what they print.
func (p *page) console(b block) {
	t := p.t
	t.Helper()
	all, err := b.commands()
	if err != nil {
		t.Errorf("%s: %v", b, err)
		return
	}
	status := 0
	for i, c := range all {
		asked := i+1 < len(all) && all[i+1].line == "echo $?"
		again := slices.ContainsFunc(looks, func(look string) bool {
			return strings.HasPrefix(strings.TrimPrefix(c.line, "bin/"), look)
		})
		for late := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
			out, code := p.run("bash", "-c", fmt.Sprintf("(exit %d)\n%s", status, c.line))
			got := strings.Split(strings.TrimRight(out, "\n"), "\n")
			same := len(c.output) == 0 || matches(c.output, got)
			if ok := code == 0 || asked; ok && same {
				t.Logf("$ %s\n%s", c.line, strings.TrimRight(out, "\n"))
				status = code
				break
			}
			if !again || time.Now().After(late) {
				t.Errorf("%s: $ %s\nended with status %d and printed\n%s\nwant\n%s", b, c.line, code, out, strings.Join(c.output, "\n"))
				return
			}
		}
	}
}

// output is what a server printed so far.
type output struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.text.String()
}

// serve starts the command of a block, waits until it has printed what the block shows,
// and ends it with the page.
func (p *page) serve(b block) {
	t := p.t
	t.Helper()
	all, err := b.commands()
	if err != nil || len(all) != 1 || len(all[0].output) == 0 {
		t.Fatalf("%s: want one command that begins with \"$ \", and what it prints when it serves (%v)", b, err)
	}
	isSidecar := strings.Contains(all[0].line, "leasehold run")
	if isSidecar && p.stop != nil {
		p.stop() // one sidecar at a time
	}
	line := strings.TrimSuffix(all[0].line, "&") // here it is in the background anyway
	cmd := exec.Command("bash", "-c", "exec env "+line)
	cmd.Dir, cmd.Env = p.dir, p.env
	var out output
	log, err := os.Create(filepath.Join(p.dir, fmt.Sprintf("line-%d.log", b.line)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = &out, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is not for it
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its status is looked at below
		close(ended)
	}()
	left := failed.Sidecar{
		Name: fmt.Sprint("line-", b.line), URL: p.ports.Replace("http://127.0.0.1:9333"), Client: http.DefaultClient,
		DataDir: filepath.Join(p.dir, "home", ".local", "state", "leasehold"), Log: log.Name(),
	}
	stop := sync.OnceFunc(func() {
		if isSidecar {
			left.Answers(t)
		}
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			<-ended
			t.Errorf("%s: it does not end", b)
		}
		if code := cmd.ProcessState.ExitCode(); isSidecar && code != 0 {
			t.Errorf("%s: the sidecar ended with status %d", b, code)
		}
		if t.Failed() {
			t.Logf("%s printed\n%s", b, out.String())
		}
		left.Files(t)
	})
	t.Cleanup(stop)
	if isSidecar {
		p.stop = stop
	}
	want := append(slices.Clone(all[0].output), "...") // and its log
	for late := time.Now().Add(patience); !matches(want, strings.Split(out.String(), "\n")); time.Sleep(20 * time.Millisecond) {
		select {
		case <-ended:
			t.Fatalf("%s: it ended:\n%s", b, out.String())
		default:
		}
		if time.Now().After(late) {
			t.Fatalf("%s: it printed\n%s\nwant\n%s", b, out.String(), strings.Join(want, "\n"))
		}
	}
}
