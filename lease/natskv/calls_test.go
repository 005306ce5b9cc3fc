package natskv

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// callsWork has one launcher ask another one, and itself.
func callsWork(t *testing.T, s *Store) {
	t.Helper()
	stop, err := s.Answer("host.1", func(question []byte) []byte { return append([]byte("answer to "), question...) })
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 { // each answer is allowed anew
		question := fmt.Sprint("question ", n)
		if got, err := s.Call(t.Context(), "host.1", []byte(question)); err != nil || string(got) != "answer to "+question {
			t.Errorf("%s: %q %v", question, got, err)
		}
	}
	stop()
	for _, nobody := range []string{"host.1", "host", "host.1.more"} {
		if got, err := s.Call(t.Context(), nobody, []byte("x")); err == nil || !strings.Contains(err.Error(), nobody) {
			t.Errorf("%s, who does not listen: %q %v", nobody, got, err)
		}
	}
}

func TestLaunchersAskEachOther(t *testing.T) {
	srv := serve(t, &server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true})
	s := open(t, dialPlain(t, srv.ClientURL()))
	callsWork(t, s)
	asked := 0 // by one goroutine, which has ended after stop
	stop, err := s.Answer("big", func(question []byte) []byte {
		asked++
		return bytes.Repeat([]byte("x"), len(question)+1)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Call(t.Context(), "big", make([]byte, maxCall-1)); err != nil || len(got) != maxCall {
		t.Errorf("the largest: %d %v", len(got), err)
	}
	if got, err := s.Call(t.Context(), "big", make([]byte, maxCall)); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("an answer that is too large: %d %v", len(got), err)
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if got, err := s.Call(short, "big", make([]byte, maxCall+1)); err == nil {
		t.Errorf("a question that is too large: %d %v", len(got), err)
	}
	stop()
	if asked != 2 {
		t.Errorf("%d questions reached it, want those that are small enough", asked)
	}
}
