package session

import (
	"path/filepath"
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/lease"
)

type nobody struct{}

func (nobody) person() *api.Person { return nil }
func (nobody) noteActs()           {}

// TestWhatComesAgainComesAfterTheCheckpoint: the page monitor reports a kind of message once until the next
// checkpoint. From when the checkpoint has its place in the journal, which it may take a disk long to get,
// the next one has to be reported again, and to come after it.
func TestWhatComesAgainComesAfterTheCheckpoint(t *testing.T) {
	r := &recording{terms: &terms{}, people: nobody{}, pictured: func(checkpoint.Entry) {}, report: func(lease.Progress) {}, safe: func(checkpoint.Entry) {}}
	path := filepath.Join(t.TempDir(), "j")
	var err error
	if r.journal, err = checkpoint.Open(path); err != nil {
		t.Fatal(err)
	}
	reported := make(chan error, 1)
	r.named = func() {
		entries, err := checkpoint.Read(path)
		if err != nil || len(entries) > 0 {
			t.Errorf("the checkpoint has its place already, and what came since was left out: %+v, %v", entries, err)
		}
		go func() {
			reported <- r.add(checkpoint.Entry{Kind: checkpoint.KindRequest, Method: checkpoint.Websocket})
		}()
		time.Sleep(20 * time.Millisecond) // one that does not have to wait is there by then
	}
	if err := r.add(checkpoint.Entry{Kind: checkpoint.KindCheckpoint, Name: "c", Safe: true}); err != nil {
		t.Fatal(err)
	}
	if err := <-reported; err != nil {
		t.Fatal(err)
	}
	if s := checkpoint.Summarize(r.entries()); s.LastSafe == nil || len(s.UnsafeSince) != 1 {
		t.Errorf("since %+v are %+v", s.LastSafe, s.UnsafeSince)
	}
}
