package natsobjects_test

import (
	"context"
	"errors"
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
	"leasehold/launcher/snapshots"
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

// TestAStreamThatWasRemovedIsMadeAgain, by the first write, whatever was known of it. What is missing meanwhile
// is missing, since the server says that there is no stream.
func TestAStreamThatWasRemovedIsMadeAgain(t *testing.T) {
	t.Parallel()
	js := connect(t, &atomic.Bool{})
	o := natsobjects.New(js, natsobjects.Config{})
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	must(o.Put(t.Context(), "a/b", []byte("1"), ""))
	_, version, err := o.Get(t.Context(), "a/b")
	must(err, js.DeleteStream(t.Context(), natsobjects.Stream))
	if err := o.Put(t.Context(), "a/b", []byte("2"), version); !errors.Is(err, objects.ErrOtherVersion) {
		t.Errorf("replaced: %v; want what says that it is not there", err)
	}
	must(js.DeleteStream(t.Context(), natsobjects.Stream))
	if keys, err := o.List(t.Context(), ""); len(keys) > 0 || err != nil {
		t.Errorf("list: %v, %v", keys, err)
	}
	if _, _, err := o.Get(t.Context(), "a/b"); !errors.Is(err, objects.ErrNone) {
		t.Errorf("get: %v", err)
	}
	must(o.Delete(t.Context(), "a/b"), o.Put(t.Context(), "a/b", []byte("3"), ""))
	if content, _, err := o.Get(t.Context(), "a/b"); err != nil || string(content) != "3" {
		t.Errorf("%q, %v", content, err)
	}
}

// TestAStoreThatWasEmptiedKeepsItsKey: who made it goes on with the next snapshot, and nobody with another key
// takes it over.
func TestAStoreThatWasEmptiedKeepsItsKey(t *testing.T) {
	t.Parallel()
	js := connect(t, &atomic.Bool{})
	s := snapshots.New(natsobjects.New(js, natsobjects.Config{}), snapshots.NewKey())
	dir := objectstest.Profile().Write(t)
	if _, err := objectstest.Seal(t, s, "p", dir, 1); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), natsobjects.Stream); err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(t.Context(), "p"); err != nil || len(list) > 0 {
		t.Errorf("the list is %v, %v", list, err)
	}
	if _, err := js.Stream(t.Context(), natsobjects.Stream); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("whoever reads makes the stream: %v", err)
	}
	made, err := objectstest.Seal(t, s, "p", dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := s.Verify(t.Context(), "p", made.ID); err != nil || !found.Whole() {
		t.Errorf("%+v, %v", found, err)
	}
	other := snapshots.New(natsobjects.New(js, natsobjects.Config{}), snapshots.NewKey())
	if err := other.Check(t.Context()); !errors.Is(err, snapshots.ErrWrongKey) {
		t.Errorf("with another key: %v", err)
	}
}
