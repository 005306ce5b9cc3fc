package launcher

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/lease"
)

func TestWhenAPictureIsDue(t *testing.T) {
	noon := time.Date(2026, 6, 18, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	entry := func(kind checkpoint.Kind, second int) checkpoint.Entry {
		return checkpoint.Entry{Kind: kind, At: at(second), Name: "n"}
	}
	for _, c := range []struct {
		name     string
		interval time.Duration
		last     time.Time
		notes    []checkpoint.Entry
		want     time.Time // zero: none is due
		news     int       // how many of the notes move it
	}{
		{"nothing happened", 30 * time.Second, at(0), nil, time.Time{}, 0},
		{"what shows nothing new", 30 * time.Second, at(0), []checkpoint.Entry{entry(checkpoint.KindConnection, 5), entry(checkpoint.KindStorage, 6), entry(checkpoint.KindPicture, 7)}, time.Time{}, 0},
		{"the first change", 30 * time.Second, time.Time{}, []checkpoint.Entry{entry(checkpoint.KindURL, 5)}, at(6), 1},
		{"a change soon after the last", 30 * time.Second, at(0), []checkpoint.Entry{entry(checkpoint.KindURL, 5)}, at(30), 1},
		{"a change long after the last", 30 * time.Second, at(0), []checkpoint.Entry{entry(checkpoint.KindStep, 50)}, at(51), 1},
		{"many changes are one", 30 * time.Second, at(0), []checkpoint.Entry{entry(checkpoint.KindURL, 5), entry(checkpoint.KindStep, 6), entry(checkpoint.KindRequest, 7), entry(checkpoint.KindForm, 8)}, at(30), 1},
		{"a short interval", 200 * time.Millisecond, at(0), []checkpoint.Entry{entry(checkpoint.KindURL, 5)}, at(5).Add(200 * time.Millisecond), 1},
		{"no rate", 0, at(0), []checkpoint.Entry{entry(checkpoint.KindURL, 5), entry(checkpoint.KindStep, 6)}, time.Time{}, 0},
		{"a checkpoint", 30 * time.Second, at(0), []checkpoint.Entry{entry(checkpoint.KindURL, 5), entry(checkpoint.KindCheckpoint, 6)}, at(1), 2},
		{"a checkpoint without a rate", 0, at(0), []checkpoint.Entry{entry(checkpoint.KindCheckpoint, 6)}, at(1), 1},
		{"the first checkpoint, at once", 0, time.Time{}, []checkpoint.Entry{entry(checkpoint.KindCheckpoint, 6)}, time.Time{}.Add(pictureSpacing), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := demand{interval: c.interval, last: c.last, frames: map[string]bool{}}
			news := 0
			for _, e := range c.notes {
				if d.note(e, false) {
					news++
				}
			}
			got, due := d.due()
			if due != (len(c.notes) > 0 && c.news > 0) || !got.Equal(c.want) || news != c.news {
				t.Errorf("due %v at %v, %d news; want %v, %d", due, got, news, c.want, c.news)
			}
		})
	}
}

// What the journal of a launcher before knows of pictures is what is kept.
func TestPicturesOfAJournal(t *testing.T) {
	var entries []checkpoint.Entry
	for i := range 6 {
		named, err := json.Marshal(evidence.Picture{EvidenceID: fmt.Sprint("pic_", i), Missing: map[bool]string{true: "sensitive"}[i > 1]})
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, checkpoint.Entry{Kind: checkpoint.KindPicture, Data: named}, checkpoint.Entry{Kind: checkpoint.KindURL})
	}
	entries = append(entries, checkpoint.Entry{Kind: checkpoint.KindPicture, Data: json.RawMessage(`{}`)}, checkpoint.Entry{Kind: checkpoint.KindPicture})
	got := ""
	for _, p := range picturesIn(entries) {
		got += p.EvidenceID + " "
	}
	// The newest three show nothing: the newest that does is kept, too.
	if want := "pic_1 pic_3 pic_4 pic_5 "; got != want {
		t.Errorf("kept %s, want %s", got, want)
	}
}

// What a holder that was fenced stored too late counts for nothing.
func TestAcceptedPictures(t *testing.T) {
	bundle := evidence.Manifest{EvidenceID: "ev", SessionID: "ses_1", Pictures: []evidence.Picture{{EvidenceID: "named"}}}
	picture := func(id, session string) evidence.Manifest {
		return evidence.Manifest{EvidenceID: id, SessionID: session, RecoveryReason: evidence.PictureReason}
	}
	for _, c := range []struct {
		state lease.State
		want  string
	}{
		{lease.Held, "ev named living run"},
		{lease.SuspectedStale, "ev named living run"},
		{lease.Quarantined, "ev named living run"},
		{lease.ManualReview, "ev named"},
		{lease.Available, "ev named"},
		{lease.ResumePending, "ev named"},
	} {
		r := lease.Record{State: c.state, SessionID: "ses_2", Runs: []lease.Run{{SessionID: "ses_3"}}}
		got := ""
		for _, m := range accepted([]evidence.Manifest{
			bundle, picture("named", "ses_1"), picture("late", "ses_1"), picture("living", "ses_2"), picture("run", "ses_3"),
		}, r) {
			got += m.EvidenceID + " "
		}
		if got != c.want+" " {
			t.Errorf("%s: %s, want %s", c.state, got, c.want)
		}
	}
}

// A page is sensitive until it goes elsewhere, when a frame in it is.
func TestFramesOfADemand(t *testing.T) {
	d := demand{frames: map[string]bool{}}
	d.note(checkpoint.Entry{Kind: checkpoint.KindFrame, Target: "a", Sensitive: true}, false)
	d.note(checkpoint.Entry{Kind: checkpoint.KindURL, Target: "b"}, false)
	if !d.frames["a"] || d.frames["b"] {
		t.Errorf("%v", d.frames)
	}
	if d.note(checkpoint.Entry{Kind: checkpoint.KindURL, Target: "a"}, false); d.frames["a"] {
		t.Errorf("%v", d.frames)
	}
}
