package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/recovery/table"
)

// stuck is a sink that waits for a disk until let is closed.
type stuck struct {
	let chan struct{}
	got []checkpoint.Entry
}

func (s *stuck) sink(e checkpoint.Entry) {
	<-s.let
	s.got = append(s.got, e)
}

// TestNobodyWaitsForTheSink: while the disk takes nothing, the pipe's reader goes on, and what
// it heard is reported in its order, with its time, when the disk is back.
func TestNobodyWaitsForTheSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &stuck{let: make(chan struct{})}
		m := New(disk.sink)
		m.guard.chrome = &resolved{}
		m.guard.rules.Store(&Rules{ReadOnly: true})
		ended := make(chan struct{})
		var passing sync.WaitGroup
		passing.Go(func() { m.outbox.passOn(ended) })
		for i := range 100 { // would be a deadlock of the bubble if it waited
			m.readerEvent(cdpproxy.Event{Session: "S", Method: eventPaused, Params: json.RawMessage(fmt.Sprintf(
				`{"requestId":"%d","request":{"url":"https://shop.example/%d","method":"POST"}}`, i, i))})
		}
		m.still.MayHaveSent("why")
		m.cookies.Compare(nil, errors.New("it does not answer"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := m.Reported(ctx); err == nil {
			t.Error("everything is reported, although the disk took nothing")
		}
		close(disk.let)
		if err := m.Reported(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(disk.got) < 102 {
			t.Fatalf("%d entries", len(disk.got))
		}
		for i, e := range disk.got {
			if e.At.IsZero() || i < 100 && e.URL != fmt.Sprintf("https://shop.example/%d", i) {
				t.Errorf("entry %d: %+v", i, e)
			}
		}
		close(ended)
		passing.Wait()
		before := len(disk.got)
		if m.still.MayHaveSent("later"); len(disk.got) != before+1 {
			t.Error("what is reported after the end is lost")
		}
	})
}

// TestWhatDoesNotFitIsCounted: a disk that takes nothing for too long costs entries, and the
// decision knows of it, by their number and by their size.
func TestWhatDoesNotFitIsCounted(t *testing.T) {
	for name, tt := range map[string]struct {
		entries, fit int
		url          string
	}{
		"too many":  {maxUnreported + 10, maxUnreported, "https://shop.example/"},
		"too large": {50, 40, "data:," + strings.Repeat("x", maxUnreportedBytes/40-len("data:,"))},
	} {
		t.Run(name, func(t *testing.T) {
			disk := &stuck{let: make(chan struct{})}
			o := newOutbox(disk.sink)
			for range tt.entries {
				o.report(checkpoint.Entry{Kind: checkpoint.KindRequest, Method: "POST", URL: tt.url})
			}
			close(disk.let)
			ended := make(chan struct{})
			close(ended)
			o.passOn(ended)
			last := disk.got[len(disk.got)-1]
			if len(disk.got) != tt.fit+1 || last.Kind != checkpoint.KindOmitted || last.Times() != uint64(tt.entries-tt.fit) {
				t.Fatalf("%d entries, the last %+v", len(disk.got), last)
			}
			s := checkpoint.Summarize(disk.got)
			if f := findings.Observed(s, false); f.Answer != table.Unknown || !strings.Contains(f.How, "10 entries of kind request left out") {
				t.Errorf("%+v", f)
			}
			if !findings.Touched(checkpoint.Summarize([]checkpoint.Entry{{Kind: checkpoint.KindStart}, last}), findings.Task{}) {
				t.Error("nothing was touched, although it is not known what was left out")
			}
		})
	}
}
