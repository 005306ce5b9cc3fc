package incidents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"leasehold/internal/test/source"
)

// application is a real web application that runs for one incident, behind the incident's
// site. What it keeps is the referee of what changed.
type application struct {
	host   string // where it listens
	signIn []Action
	// state is all that the application keeps of the account, by a name for each thing.
	state func(context.Context) (map[string]string, error)
	// children are its processes, in the order of their start.
	children []*child
	last     map[string]string
}

// applications start each real application with what it keeps in a directory, by the name of
// the site. They are installed by scripts/install-real.sh.
var applications = map[string]func(ctx context.Context, dir string) (*application, error){
	"pocketbase": pocketbase, "nodered": nodeRED, "phpmyadmin": phpMyAdmin,
}

// installedReal is the path of something that scripts/install-real.sh has installed.
func installedReal(name string) string { return source.Path("build/real/" + name) }

// begin starts the application of a site in a new directory, and reads its state.
func begin(site string) (a *application, dir string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), incidentTimeout)
	defer cancel()
	if dir, err = os.MkdirTemp("", "real"); err != nil {
		return nil, "", err
	}
	a, err = applications[site](ctx, dir)
	if err == nil {
		a.last, err = a.state(ctx)
	}
	if err != nil {
		if a != nil {
			a.stop()
		}
		return nil, "", fmt.Errorf("%s: %w: run \"make real\"", site, errors.Join(err, os.RemoveAll(dir)))
	}
	return a, dir, nil
}

// signIn signs the account of an incident in, in a session of its own that ends in order.
func signIn(ctx context.Context, sidecar string, s *site, i Incident) error {
	d, err := enter(ctx, sidecar, Incident{Name: i.Name, Manifest: Manifest{ExpectedDomains: i.Manifest.ExpectedDomains}})
	if err != nil {
		return err
	}
	w, err := connect(ctx, d)
	if err != nil {
		return err
	}
	defer w.kill()
	if err := signInBy(ctx, w, s); err != nil {
		return err
	}
	w.page = ""
	if err := w.call(ctx, "Lease.release", map[string]any{"outcome": "succeeded"}, nil); err != nil {
		return err
	}
	_, err = awaitDecision(ctx, sidecar, i.Name)
	return err
}

// signInBy signs the account in by a worker.
func signInBy(ctx context.Context, w *wire, s *site) error {
	for n, a := range s.signIn() {
		if err := w.do(ctx, s, a); err != nil {
			return fmt.Errorf("action %d of the sign-in: %w", n+1, err)
		}
	}
	return nil
}

// proxy passes requests on to the application, which sees the name of the site as its own.
func (a *application) proxy() http.Handler {
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: a.host})
		r.Out.Host = r.In.Host
	}}
}

// changes are what is other in the application than at the last call. What was there before has
// been set or taken away, which twice is the same as once.
func (a *application) changes() ([]effect, error) {
	ctx, cancel := context.WithTimeout(context.Background(), incidentTimeout)
	defer cancel()
	now, err := a.state(ctx)
	if err != nil {
		return nil, err
	}
	before := a.last
	a.last = now
	names := maps.Clone(before)
	maps.Copy(names, now)
	var all []effect
	for _, name := range slices.Sorted(maps.Keys(names)) {
		old, was := before[name]
		is, there := now[name]
		switch {
		case !was:
			all = append(all, effect{What: name + " is new"})
		case !there:
			all = append(all, effect{What: name + " is gone", Again: true})
		case old != is:
			all = append(all, effect{What: name + " is other", Again: true})
		}
	}
	return all, nil
}

func (a *application) stop() {
	for _, c := range slices.Backward(a.children) {
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		<-c.done
	}
}

// child is a process of an application. It ends with the test.
type child struct {
	cmd  *exec.Cmd
	done chan struct{}
	said bytes.Buffer // complete when done is closed
}

// run starts a process of the application.
func (a *application) run(cmd *exec.Cmd) error {
	c := &child{cmd: cmd, done: make(chan struct{})}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Stdout, cmd.Stderr = &c.said, &c.said
	started := make(chan error, 1)
	go func() {
		// The parent-death signal is sent when the thread ends that started the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	a.children = append(a.children, c)
	return nil
}

// until calls a function until it returns no error. It gives up when the newest process has ended.
func (a *application) until(ctx context.Context, ready func() error) error {
	c := a.children[len(a.children)-1]
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(recheck):
		case <-c.done:
			return fmt.Errorf("%s has ended: %s: %w", c.cmd.Path, c.said.String(), err)
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

// port finds one that nobody listens on. An application that does not get it ends, which fails
// its incident.
func port() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}

// ask makes a request with a JSON body to the application's own API, as the referee.
func (a *application) ask(ctx context.Context, method, path, authorization string, body, result any) error {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+a.host+path, r)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Authorization", authorization)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode >= 300:
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, b)
	case result == nil:
		return nil
	}
	return json.Unmarshal(b, result)
}
