package outlet

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func note(dropped uint64) []byte { return fmt.Appendf(nil, "%d lines dropped\n", dropped) }

// reader takes what it gets while it is open, and fails every write while it is gone.
type reader struct {
	open chan struct{} // an element lets one write pass; closed: all of them

	mu   sync.Mutex
	gone bool
	got  []string
}

func (r *reader) Write(p []byte) (int, error) {
	<-r.open
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return 0, unix.EPIPE
	}
	r.got = append(r.got, string(p))
	return len(p), nil
}

func (r *reader) leaves(gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = gone
}

func TestAReaderThatStallsIsToldWhatItMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{open: make(chan struct{})}
		o := New(r, note)
		line := []byte(strings.Repeat("x", maxWaiting/4-1) + "\n")
		for range 10 { // this would be a deadlock of the bubble if it waited
			if n, err := o.Write(line); n != len(line) || err != nil {
				t.Fatalf("%d bytes written, %v, want %d and no error", n, err, len(line))
			}
			synctest.Wait()
		}
		if o.Dropped() != 5 { // one is being written, and four wait
			t.Errorf("%d dropped", o.Dropped())
		}
		close(r.open)
		synctest.Wait()
		if len(r.got) != 6 || r.got[5] != "5 lines dropped\n" {
			t.Errorf("%d writes, the last %.20q", len(r.got), r.got[len(r.got)-1])
		}
		_, _ = o.Write([]byte("again\n"))
		o.Close(time.Minute)
		if r.got[len(r.got)-1] != "again\n" {
			t.Errorf("the last is %.20q", r.got[len(r.got)-1])
		}
	})
}

func TestAReaderThatCameBackIsToldWhatItMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{open: make(chan struct{}), gone: true}
		close(r.open)
		o := New(r, note)
		say := func(line string) {
			_, _ = io.WriteString(o, line)
			synctest.Wait()
		}
		say("1\n")
		say("2\n")
		r.leaves(false)
		say("3\n")
		if got := strings.Join(r.got, ""); got != "2 lines dropped\n3\n" || o.Dropped() != 2 {
			t.Errorf("%q, %d dropped", got, o.Dropped())
		}
		o.Close(time.Minute)
	})
}

// TestAReaderThatStallsDoesNotHoldUpTheEnd: Close waits no longer than it was told to.
func TestAReaderThatStallsDoesNotHoldUpTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{open: make(chan struct{})}
		o := New(r, note)
		_, _ = io.WriteString(o, "1\n")
		begun := time.Now()
		if o.Close(time.Second); time.Since(begun) != time.Second {
			t.Errorf("waited %s", time.Since(begun))
		}
		close(r.open)
		<-o.ended
	})
}

func TestLinesComeInTheirOrder(t *testing.T) {
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		n := 0
		for lines := bufio.NewScanner(from); lines.Scan(); n++ {
			if lines.Text() != fmt.Sprint(n) {
				t.Errorf("line %d is %q", n, lines.Text())
			}
		}
		if n != 1000 {
			t.Errorf("%d lines", n)
		}
	})
	o := New(to, note)
	for i := range 1000 {
		fmt.Fprintln(o, i)
	}
	o.Close(time.Minute)
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	reading.Wait()
}
