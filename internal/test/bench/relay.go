package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// relayArg as the first argument makes this program run as a plain relay to the host in
// the second one.
const relayArg = "relay"

// relay is Go's own reverse proxy before a debugging port. It looks at no message: what it
// costs is what any process between a client and Chrome's port costs. It runs until its
// standard input ends.
func relay(host string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: host})
	web := &http.Server{Handler: proxy, ReadHeaderTimeout: answerTimeout}
	served := make(chan error, 1)
	go func() { served <- web.Serve(l) }()
	fmt.Println(l.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	err = errors.Join(err, web.Close())
	if stopped := <-served; !errors.Is(stopped, http.ErrServerClosed) {
		err = errors.Join(err, stopped)
	}
	return err
}

// relayProcess is a running relay, a process of its own.
type relayProcess struct {
	cmd *exec.Cmd
	in  io.Closer
}

// startRelay starts a relay to the port of a websocket URL, and returns the same URL by
// way of it.
func startRelay(port string) (_ *relayProcess, by string, err error) {
	u, err := url.Parse(port)
	if err != nil {
		return nil, "", err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	cmd := exec.Command(self, relayArg, u.Host)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, "", err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	r := &relayProcess{cmd: cmd, in: in}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, "", errors.Join(errors.New("the relay ended before it was ready"), err, r.stop())
	}
	u.Host = strings.TrimSpace(line)
	return r, u.String(), nil
}

func (r *relayProcess) stop() error {
	if r == nil {
		return nil
	}
	return errors.Join(r.in.Close(), r.cmd.Wait())
}
