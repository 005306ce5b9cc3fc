package natsd

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"leasehold/internal/durable"
	"leasehold/internal/test/smalldisk"
)

// logBuffer takes a log that several goroutines write.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain for: " + what)
		}
	}
}

// A server whose disk was full takes no writes when there is room again. It is replaced by
// one that does; the connection stays, and everything acknowledged is there.
func TestAServerWhoseDiskWasFullGoesOn(t *testing.T) {
	dir := smalldisk.Run(t, "24m")
	if dir == "" {
		return
	}
	var log logBuffer
	s, err := Start(Options{Dir: filepath.Join(dir, "nats"), Listen: "127.0.0.1:0", Log: zerolog.New(&log)})
	must(t, s, err)
	defer s.Shutdown()
	nc, err := s.Connect()
	kv := bucket(t, jets(t, connected(t, nc, err)), "b")
	put := func(value string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := kv.Put(ctx, "k", []byte(value))
		return err
	}
	eventually(t, "the first write", func() bool { return put("before") == nil })
	url := s.ClientURL()

	empty := smalldisk.Fill(t, dir)
	eventually(t, "a write that is not stored", func() bool { return put(strings.Repeat("x", 10000)) != nil })
	eventually(t, "the server to be known as one that does not store", func() bool { return s.Problem() != nil })
	var problem *NotWritingError
	if err := s.Problem(); !errors.As(err, &problem) || problem.Dir != filepath.Join(dir, "nats") || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("%v; want what is full, and why", err)
	}
	if err := put("while it is full"); err == nil {
		t.Error("stored on a full disk")
	}

	empty()
	eventually(t, "the server to go on", func() bool { return s.Problem() == nil })
	eventually(t, "a write", func() bool { return put("after") == nil })
	history, err := kv.History(t.Context(), "k")
	if must(t, history, err); string(history[0].Value()) != "before" || string(history[len(history)-1].Value()) != "after" {
		t.Errorf("%v", history)
	}
	sub, err := nats.Connect(url, nats.Timeout(time.Minute))
	must(t, sub, err).Close()
	for _, want := range []string{writeError, "does not store anything", "was started again"} {
		if n := strings.Count(log.String(), want); n == 0 {
			t.Errorf("the log does not say %q:\n%s", want, log.String())
		}
	}
}

// Space that was kept free lets a server go on while its disk is full.
func TestAServerUsesTheSpaceThatIsKeptForIt(t *testing.T) {
	dir := smalldisk.Run(t, "24m")
	if dir == "" {
		return
	}
	reserve, err := durable.KeepReserve(filepath.Join(dir, "reserve"), 6<<20)
	must(t, reserve, err)
	if whole, err := reserve.Fill(0); !must(t, whole, err) {
		t.Fatal("no space was kept")
	}
	s, err := Start(Options{Dir: filepath.Join(dir, "nats"), Reserve: reserve, Log: zerolog.Nop()})
	must(t, s, err)
	defer s.Shutdown()
	nc, err := s.Connect()
	kv := bucket(t, jets(t, connected(t, nc, err)), "b")
	smalldisk.Fill(t, dir)
	eventually(t, "the server to be given room", func() bool { return reserve.Left() < 6<<20 })
	eventually(t, "a write", func() bool {
		_, err := kv.Put(t.Context(), "k", make([]byte, 10000))
		return err == nil && s.Problem() == nil
	})
}

// An error that is none of the disk's, such as one that a subscriber brings about, does not
// cost the server.
func TestAnErrorOfASubscriberIsNoProblem(t *testing.T) {
	s := start(t, t.TempDir(), "")
	for _, said := range []string{"127.0.0.1:1 - cid:5 - TLS handshake error: EOF", ""} {
		if why := s.cannotWrite(said); why != "" {
			t.Errorf("%q: %s", said, why)
		}
	}
	if why := s.cannotWrite("STREAM: " + writeError + ": no space left on device"); why == "" {
		t.Error("a write error is no problem")
	}
}
