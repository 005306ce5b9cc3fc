package chaos

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"leasehold/lease"
)

// reads adds a reader of a snapshot, which finds what a session left.
func (s *script) reads(snapshot, found lease.Token) *script {
	return s.add(Entry{Kind: Reader, Token: snapshot, Session: "r", Worker: "reads"}).
		add(Entry{Kind: ReaderFound, Token: snapshot, Session: "r", Cookie: found, Stored: found})
}

// sends adds a request of the reader.
func (s *script) sends(method string) *script {
	return s.add(Entry{Kind: ReaderRequest, Token: 1, Session: "r", Text: method})
}

// TestCheckFindsWhatReadersMayNotDo feeds Check with histories that are made up.
func TestCheckFindsWhatReadersMayNotDo(t *testing.T) {
	event := func(change func(*lease.Event)) []Entry {
		s := newScript().kept(1, 0).reads(1, 1).session(2, 1, "b")
		change(s.entries[len(s.entries)-1].Event)
		return s.entries
	}
	late := func(by time.Duration) []Entry {
		s := newScript().kept(1, 0).reads(1, 1).add(Entry{Kind: ReaderEnded, Session: "r"})
		s.now = s.now.Add(by)
		return s.sends("GET").entries
	}
	for name, tt := range map[string]struct {
		history []Entry
		want    []string
	}{
		"beside the next session":         {newScript().kept(1, 0).reads(1, 1).sends("GET").session(2, 1, "b").sends("GET").kept(3, 1).entries, nil},
		"an older state":                  {newScript().kept(1, 0).kept(2, 1).reads(2, 1).entries, []string{Older}},
		"an older snapshot":               {newScript().kept(1, 0).kept(2, 1).reads(1, 1).entries, nil},
		"a later state":                   {newScript().kept(1, 0).kept(2, 1).reads(1, 2).entries, []string{ReaderAhead}},
		"what another reader wrote":       {newScript().kept(1, 0).reads(1, readerMark+1).entries, []string{ReaderAhead}},
		"what a reader wrote stays":       {newScript().kept(1, 0).reads(1, 1).kept(2, readerMark+1).entries, []string{ReaderWrote}},
		"an unsafe request":               {newScript().kept(1, 0).reads(1, 1).sends("POST").entries, []string{ReaderUnsafe}},
		"a request on its way at the end": {late(0), nil},
		"a request long after the end":    {late(readerTime), []string{ReaderAfter}},
		"an event of its session":         {event(func(e *lease.Event) { e.SessionID = "r" }), []string{ReaderInLease}},
		"an event of its worker":          {event(func(e *lease.Event) { e.OwnerWorkerID = "reads" }), []string{ReaderInLease}},
		"a conflict with it":              {event(func(e *lease.Event) { e.BlockedWorkerID = "reads" }), []string{ReaderInLease}},
		"a worker that waits for it":      {newScript().reads(1, 0).add(Entry{Kind: Refused, Holder: "reads"}).entries, []string{ReaderInLease}},
		"a worker that waits for another": {newScript().reads(1, 0).add(Entry{Kind: Refused, Holder: "w"}).entries, nil},
	} {
		t.Run(name, func(t *testing.T) { judged(t, tt.history, tt.want...) })
	}
}

// TestWhatReadersLeaveIsFound: the copy of one, and nothing else of a launcher.
func TestWhatReadersLeaveIsFound(t *testing.T) {
	dir := t.TempDir()
	h := &harness{dir: dir, hosts: []*host{{data: &disk{path: dir}}}}
	for _, name := range []string{"d/readers/.unpacked/x", "d/readers/.leasehold", "d/profiles/ses_1"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if left := h.readersLeft(); len(left) > 0 {
		t.Errorf("%q", left)
	}
	kept := filepath.Join(dir, "d/readers/ses_2")
	if err := os.Mkdir(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	if left := h.readersLeft(); len(left) != 1 || left[0] != kept {
		t.Errorf("%q", left)
	}
}
