package natsobjects_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"leasehold/internal/objects"
	"leasehold/internal/test/natstest"
	"leasehold/internal/test/objectstest"
	"leasehold/launcher/snapshots/natsobjects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// connect starts a server with JetStream, reached in process only. Its answers are lost while silent is
// true.
func connect(t *testing.T, silent *atomic.Bool) jetstream.JetStream {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		ServerName: "profiles-test", JetStream: true, StoreDir: t.TempDir(), DontListen: true, NoLog: true, NoSigs: true, SyncAlways: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server did not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(natstest.Forgetful{InProcessConnProvider: s, Silent: silent}), nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	t.Cleanup(func() {
		nc.Close()
		<-closed
	})
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func TestObjects(t *testing.T) {
	objectstest.Run(t, func(t *testing.T) objects.Objects {
		return natsobjects.New(connect(t, &atomic.Bool{}), natsobjects.Config{})
	})
}

// TestALostAnswerIsNotWaitedFor: a snapshot may take half an hour over a slow line. An answer that was lost
// with a connection does not keep it that long from being tried again.
func TestALostAnswerIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	silent := &atomic.Bool{}
	js := connect(t, silent)
	o := natsobjects.New(js, natsobjects.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := o.Put(ctx, "a/b", []byte("x"), ""); err != nil {
		t.Fatal(err)
	}
	o.AnswersWithin(100 * time.Millisecond)
	first := natsobjects.New(js, natsobjects.Config{}) // it has to look the stream up
	first.AnswersWithin(100 * time.Millisecond)
	silent.Store(true)
	for name, ask := range map[string]func(*natsobjects.Objects) error{
		"get":     func(o *natsobjects.Objects) error { _, _, err := o.Get(ctx, "a/b"); return err },
		"put":     func(o *natsobjects.Objects) error { return o.Put(ctx, "a/c", []byte("x"), "") },
		"delete":  func(o *natsobjects.Objects) error { return o.Delete(ctx, "a/d") },
		"list":    func(o *natsobjects.Objects) error { _, err := o.List(ctx, "a/"); return err },
		"folders": func(o *natsobjects.Objects) error { _, err := o.Folders(ctx, "a/"); return err },
	} {
		for _, o := range []*natsobjects.Objects{o, first} {
			if err := ask(o); err == nil || ctx.Err() != nil {
				t.Errorf("%s: %v, the context: %v", name, err, ctx.Err())
			}
		}
	}
	silent.Store(false)
	o.AnswersWithin(patience)
	if content, _, err := o.Get(ctx, "a/b"); err != nil || string(content) != "x" {
		t.Errorf("then: %q, %v", content, err)
	}
}
