// Package s3test runs a real S3 server for tests: versitygw over a directory. Its
// version is pinned in a module of its own, in the folder gateway, so that nothing of
// it gets into the project's binary. The go command builds that into its cache.
package s3test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"leasehold/internal/test/built"
	"leasehold/internal/test/freeport"
	"leasehold/internal/test/source"
)

// The credentials, the one bucket, and the region of every Server.
const (
	AccessKey = "leasehold-test"
	SecretKey = "only-for-this-test"
	Bucket    = "evidence"
	Region    = "us-east-1"
)

// startTimeout is how long the server may take to answer.
const startTimeout = 60 * time.Second

// Server is an S3 server on a loopback port.
type Server struct {
	// Addr is host:port.
	Addr string
	// Root is the bucket's directory. Each object is a file in it.
	Root string

	t      testing.TB
	cmd    *exec.Cmd
	done   chan struct{}
	output bytes.Buffer
}

// binary returns the server's path, and builds it unless it is in the go command's
// cache.
var binary = sync.OnceValues(func() (string, error) {
	return built.Tool(source.Path("internal/test/s3test/gateway"), "gateway")
})

// Start runs a server until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, Addr: fmt.Sprintf("127.0.0.1:%d", freeport.Take(t, 1)[0]), Root: filepath.Join(t.TempDir(), Bucket)}
	if err := os.Mkdir(s.Root, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Stop()
		if t.Failed() {
			t.Logf("versitygw printed:\n%s", s.output.String())
		}
	})
	s.Run()
	return s
}

// Run starts the server after Stop, on the same port and directory.
func (s *Server) Run() {
	s.t.Helper()
	path, err := binary()
	if err != nil {
		s.t.Fatal(err)
	}
	s.cmd = exec.Command(path, s.Addr, filepath.Dir(s.Root), AccessKey, SecretKey, Region)
	s.cmd.Stdout, s.cmd.Stderr = &s.output, &s.output
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		s.t.Fatal(err)
	}
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		_ = s.cmd.Wait() // it ends by a signal
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for end := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) {
		response, err := client.Get("http://" + s.Addr + "/health")
		if err == nil {
			response.Body.Close()
			return
		}
		select {
		case <-s.done:
			s.t.Fatalf("versitygw ended:\n%s", s.output.String())
		default:
		}
		if time.Now().After(end) {
			s.Stop()
			s.t.Fatalf("versitygw does not answer: %v\n%s", err, s.output.String())
		}
	}
}

// Stop kills the server, and waits until it has ended.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may have ended
	<-s.done
	s.cmd = nil
}

// Pause stops the server's process until Resume. Connections are still accepted, but
// nothing is answered.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume ends Pause.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// URL is the evidence store's URL of the bucket, with a prefix for its objects.
func (s *Server) URL(prefix string) string { return URL(s.Addr, prefix) }

// URL is the evidence store's URL of the bucket, on the server at addr.
func URL(addr, prefix string) string {
	return fmt.Sprintf("s3://%s/%s?endpoint=http://%s&region=%s&path_style=true", Bucket, prefix, addr, Region)
}
