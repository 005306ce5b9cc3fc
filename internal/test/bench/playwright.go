package main

import (
	"bufio"
	_ "embed" // for the script
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed playwright.mjs
var playwrightScript []byte

// playwright is a Node.js process that runs the script each time it is asked to.
type playwright struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
	web   *http.Server
}

// startPlaywright starts a script on each side.
func (r *rig) startPlaywright(o options) error {
	for _, s := range r.sides() {
		var err error
		if s.script, err = newPlaywright(o.clients, s.url, servePage); err != nil {
			return err
		}
	}
	return nil
}

// newPlaywright starts a script that uses the browser at a URL, and a web server for
// its pages. mode is the script's third argument, if it has one.
func newPlaywright(clients, url string, pages http.HandlerFunc, mode ...string) (_ *playwright, err error) {
	clients, err = filepath.Abs(clients)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(clients, "node_modules", "playwright-core")); err != nil {
		return nil, fmt.Errorf("playwright is not installed: run \"make deps\": %w", err)
	}
	p := &playwright{}
	page, web, err := serve(pages)
	if err != nil {
		return nil, err
	}
	p.web = web
	defer func() {
		if err != nil {
			err = errors.Join(err, p.web.Close())
		}
	}()
	return p, p.start(clients, append([]string{url, page}, mode...)...)
}

// start runs the script from a directory in which Node.js finds the packages.
func (p *playwright) start(clients string, args ...string) error {
	script, err := os.CreateTemp(clients, ".bench-*.mjs")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(script.Name()) }()
	if _, err := script.Write(playwrightScript); err != nil {
		return err
	}
	if err := script.Close(); err != nil {
		return err
	}
	p.cmd = exec.Command("node", append([]string{script.Name()}, args...)...)
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	p.lines = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	if !p.lines.Scan() {
		return errors.New("the Playwright script ended before it was ready")
	}
	return nil
}

// once runs the script once, and returns how long that took in ms.
func (p *playwright) once() (float64, error) {
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		return 0, err
	}
	late := time.AfterFunc(answerTimeout, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	if !p.lines.Scan() {
		return 0, errors.New("the Playwright script ended")
	}
	return strconv.ParseFloat(p.lines.Text(), 64)
}

func (p *playwright) stop() error {
	return errors.Join(p.in.Close(), p.cmd.Wait(), p.web.Close())
}

// servePage serves a long page with a form and a list.
func servePage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprintf(w, `<!doctype html><title>bench</title><form onsubmit="document.title=this.q.value;return false"><input name=q><button>go</button></form><ul>%s</ul>`,
		strings.Repeat(`<li style="background:linear-gradient(#fff,#def)">an item with <b>some</b> text</li>`, 200))
}
