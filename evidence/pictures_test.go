package evidence_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/internal/test/storetest"
)

func picture(session string, token uint64, at time.Time) evidence.Manifest {
	return evidence.Manifest{
		ProfileID: "p", SessionID: session, LeaseToken: token, At: at, LastKnownStep: "list", Checkpoint: "list_open",
		LastKnownURL: "https://ann:" + secret + "@shop.example/list?q=" + secret, PreviousEvidenceID: "ev_0", LastScreenshot: "x",
	}
}

// lostSession stores a bundle that names three pictures of its session, and a picture
// that no bundle names.
func lostSession(t *testing.T) (evidence.Store, storetest.Damage, *evidence.Archive, evidence.Link, []evidence.Picture, evidence.Picture) {
	t.Helper()
	s, damage := openDir(t)
	spool := storetest.Spool(t)
	a := evidence.NewArchive(spool, s, zerolog.Nop())
	for i := range 3 {
		why := ""
		if i == 2 {
			why = "the page is sensitive"
		}
		if _, err := a.PutPicture(t.Context(), picture("ses_1", 7, noon.Add(time.Duration(i)*time.Minute)), []byte(fmt.Sprint("image ", i)), why); err != nil {
			t.Fatal(err)
		}
	}
	other, err := a.PutPicture(t.Context(), picture("ses_0", 6, noon), []byte("of another session"), "")
	if err != nil {
		t.Fatal(err)
	}
	named, err := a.Pictures(t.Context(), "p", "ses_1")
	if err != nil || len(named) != 3 {
		t.Fatalf("%+v, %v", named, err)
	}
	b, err := spool.New(evidence.Manifest{ProfileID: "p", SessionID: "ses_1", LeaseToken: 8, At: noon.Add(time.Hour), RecoveryReason: "lease_expired"})
	if err != nil {
		t.Fatal(err)
	}
	b.SetPictures(named)
	m, sum, err := a.Save(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return s, damage, a, evidence.Link{EvidenceID: m.EvidenceID, SHA256: sum}, named, other
}

func TestAPictureIsABundle(t *testing.T) {
	_, _, a, head, named, other := lostSession(t)
	p := named[0]
	if p.URL != "https://shop.example/list?q=REDACTED" || p.Step != "list" || p.Checkpoint != "list_open" || p.LeaseToken != 7 || p.Missing != "" || named[2].Missing == "" {
		t.Errorf("%+v", named)
	}
	if b, err := a.Part(t.Context(), p.EvidenceID, evidence.PicturePart); err != nil || string(b) != "image 0" {
		t.Errorf("%q, %v", b, err)
	}
	raw, err := a.Manifest(t.Context(), p.EvidenceID)
	if err != nil || bytes.Contains(raw, []byte(secret)) {
		t.Errorf("%s, %v", raw, err)
	}
	r, err := evidence.Verify(t.Context(), a, "p", head)
	// There are five bundles, of which one picture and the session's bundle have no
	// part.
	if err != nil || !r.OK() || r.Bundles != 5 || r.Parts != 3 || len(r.Unlinked) != 0 || len(r.Forks) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	// Without a head Verify starts at the newest bundle that is no picture.
	if r, err := evidence.Verify(t.Context(), a, "p", evidence.Link{}); err != nil || !r.OK() || r.Head != head.EvidenceID {
		t.Errorf("%+v, %v", r, err)
	}
	if err := a.DropPictures(t.Context(), "p", other, other); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Manifest(t.Context(), other.EvidenceID); !errors.Is(err, evidence.ErrNotFound) {
		t.Errorf("a dropped picture: %v", err)
	}
}

func TestVerifyFindsWhatWasDoneToPictures(t *testing.T) {
	for _, c := range []struct {
		name    string
		damage  func(t *testing.T, s evidence.Store, d storetest.Damage, named []evidence.Picture, other evidence.Picture)
		problem string
	}{
		{"changed", func(t *testing.T, _ evidence.Store, d storetest.Damage, named []evidence.Picture, _ evidence.Picture) {
			d.Change(t, "p", named[0].EvidenceID, evidence.PicturePart)
		}, evidence.PartChanged},
		{"its part removed", func(t *testing.T, _ evidence.Store, d storetest.Damage, named []evidence.Picture, _ evidence.Picture) {
			d.Remove(t, "p", named[0].EvidenceID, evidence.PicturePart)
		}, evidence.PartMissing},
		{"removed", func(t *testing.T, s evidence.Store, _ storetest.Damage, named []evidence.Picture, _ evidence.Picture) {
			if err := s.Delete(t.Context(), evidence.Manifest{EvidenceID: named[1].EvidenceID, ProfileID: "p"}); err != nil {
				t.Fatal(err)
			}
		}, evidence.BundleMissing},
		{"another in its place", func(t *testing.T, _ evidence.Store, d storetest.Damage, named []evidence.Picture, other evidence.Picture) {
			d.Swap(t, "p", named[0].EvidenceID, other.EvidenceID)
		}, evidence.BundleChanged},
		{"one that nobody names, changed", func(t *testing.T, _ evidence.Store, d storetest.Damage, _ []evidence.Picture, other evidence.Picture) {
			d.Change(t, "p", other.EvidenceID, evidence.PicturePart)
		}, evidence.PartChanged},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, d, _, head, named, other := lostSession(t)
			c.damage(t, s, d, named, other)
			r, err := evidence.Verify(t.Context(), s, "p", head)
			if err != nil || len(r.Findings) == 0 || r.Findings[0].Problem != c.problem {
				t.Errorf("%+v, %v; want %s", r.Findings, err, c.problem)
			}
		})
	}
}

// The pictures that a bundle names cannot have a higher token than its own.
func TestVerifyFindsAPictureOfALaterHolder(t *testing.T) {
	s, _ := openDir(t)
	spool := storetest.Spool(t)
	a := evidence.NewArchive(spool, s, zerolog.Nop())
	p, err := a.PutPicture(t.Context(), picture("ses_2", 9, noon), []byte("image"), "")
	if err != nil {
		t.Fatal(err)
	}
	b, err := spool.New(evidence.Manifest{ProfileID: "p", LeaseToken: 8})
	if err != nil {
		t.Fatal(err)
	}
	b.SetPictures([]evidence.Picture{p})
	m, sum, err := a.Save(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	r, err := evidence.Verify(t.Context(), s, "p", evidence.Link{EvidenceID: m.EvidenceID, SHA256: sum})
	if err != nil || len(r.Findings) != 1 || r.Findings[0].Problem != evidence.BundleReordered {
		t.Errorf("%+v, %v", r, err)
	}
}

// A picture stays as long as the bundle that names it. One that no bundle names stays as
// long as its session, and at least a day, since a bundle may still come.
func TestRetainAndPictures(t *testing.T) {
	s, _, a, head, named, other := lostSession(t)
	spool := storetest.Spool(t)
	later, newest := storetest.Seal(t, spool, "p", "ev_later", 9, head)
	if err := s.Put(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	needs := func(n evidence.Needs) func(context.Context) (evidence.Needs, error) {
		n.Profiles = map[string]bool{"p": true}
		return func(context.Context) (evidence.Needs, error) { return n, nil }
	}
	left := func() (ids []string) {
		t.Helper()
		list, err := s.List(t.Context(), "p")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			if m.IsPicture() {
				ids = append(ids, m.EvidenceID)
			}
		}
		return ids
	}
	limits := evidence.Retention{MaxAge: 1000 * time.Hour}
	for _, c := range []struct {
		name  string
		needs evidence.Needs
		now   time.Time
		want  int
	}{
		{"a session that ended just now", evidence.Needs{}, noon.Add(23 * time.Hour), 4},
		{"one that goes on", evidence.Needs{Sessions: map[string]bool{"ses_0": true}}, noon.Add(48 * time.Hour), 4},
		{"one that is over", evidence.Needs{}, noon.Add(48 * time.Hour), 3},
		{"a bundle that is needed", evidence.Needs{Evidence: map[string]string{head.EvidenceID: "p"}}, noon.Add(2000 * time.Hour), 3},
		{"one that is not", evidence.Needs{Evidence: map[string]string{"ev_later": "p"}}, noon.Add(2000 * time.Hour), 0},
	} {
		if _, err := a.Retain(t.Context(), limits, "l", needs(c.needs), c.now); err != nil {
			t.Fatal(err)
		}
		if got := left(); len(got) != c.want || c.want == 3 && slices.Contains(got, other.EvidenceID) {
			t.Errorf("%s: %v are left of %+v and %s, want %d", c.name, got, named, other.EvidenceID, c.want)
		}
	}
	if r, err := evidence.Verify(t.Context(), s, "p", newest); err != nil || !r.OK() || r.CutOff == nil || r.CutOff.Bytes < int64(len("image 0image 1")) {
		t.Errorf("%+v, %v", r, err)
	}
}

// The bundle that names a picture may wait for long in the spool of a host that is away. Nobody else knows what it
// names, so the pictures of its profile stay.
func TestAPictureOfABundleInAnotherSpoolStays(t *testing.T) {
	for name, later := range map[string]bool{"its record names the bundle": false, "a later bundle follows it": true} {
		s, _ := openDir(t)
		spool := storetest.Spool(t)
		away, here := evidence.NewArchive(spool, s, zerolog.Nop()), evidence.NewArchive(storetest.Spool(t), s, zerolog.Nop())
		if _, err := away.PutPicture(t.Context(), picture("ses_1", 7, noon), []byte("image"), ""); err != nil {
			t.Fatal(err)
		}
		named, err := away.Pictures(t.Context(), "p", "ses_1")
		if err != nil || len(named) != 1 {
			t.Fatalf("%+v, %v", named, err)
		}
		b, err := spool.New(evidence.Manifest{ProfileID: "p", SessionID: "ses_1", LeaseToken: 8, At: noon, RecoveryReason: "lease_expired"})
		if err != nil {
			t.Fatal(err)
		}
		b.SetPictures(named)
		m, sum, err := b.Seal()
		if err != nil {
			t.Fatal(err)
		}
		head := evidence.Link{EvidenceID: m.EvidenceID, SHA256: sum}
		if later {
			next, err := here.New(evidence.Manifest{ProfileID: "p", LeaseToken: 9, At: noon.Add(time.Hour), PreviousEvidenceID: head.EvidenceID, PreviousManifestSHA256: head.SHA256})
			if err != nil {
				t.Fatal(err)
			}
			m, sum, err := here.Save(t.Context(), next)
			if err != nil {
				t.Fatal(err)
			}
			head = evidence.Link{EvidenceID: m.EvidenceID, SHA256: sum}
		}
		needs := func(context.Context) (evidence.Needs, error) {
			return evidence.Needs{Profiles: map[string]bool{"p": true}, Evidence: map[string]string{head.EvidenceID: "p"}}, nil
		}
		retain := func() {
			t.Helper()
			if _, err := here.Retain(t.Context(), evidence.Retention{MaxAge: 1000 * time.Hour}, "l", needs, noon.Add(100*time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		retain()
		if err := away.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r, err := evidence.Verify(t.Context(), s, "p", head); err != nil || !r.OK() {
			t.Errorf("%s: %+v, %v", name, r.Findings, err)
		}
		// Then it is known which pictures are named, and those that are not are removed.
		if _, err := away.PutPicture(t.Context(), picture("ses_0", 6, noon), []byte("of another session"), ""); err != nil {
			t.Fatal(err)
		}
		retain()
		if left, err := here.Pictures(t.Context(), "p", "ses_0", "ses_1"); err != nil || len(left) != 1 || left[0].EvidenceID != named[0].EvidenceID {
			t.Errorf("%s: left are %+v, %v", name, left, err)
		}
	}
}

// A bundle may never come, if its host is lost. Its pictures stay no longer than it would have.
func TestAPictureOfABundleThatNeverComesIsRemoved(t *testing.T) {
	s, _ := openDir(t)
	a := evidence.NewArchive(storetest.Spool(t), s, zerolog.Nop())
	if _, err := a.PutPicture(t.Context(), picture("ses_1", 7, noon), []byte("image"), ""); err != nil {
		t.Fatal(err)
	}
	needs := func(context.Context) (evidence.Needs, error) {
		return evidence.Needs{Profiles: map[string]bool{"p": true}, Evidence: map[string]string{"ev_lost": "p"}}, nil
	}
	for _, tt := range []struct {
		limits evidence.Retention
		after  time.Duration
		want   int
	}{
		{evidence.Retention{MaxBytes: 1 << 30}, 1001 * time.Hour, 1},
		{evidence.Retention{MaxAge: 1000 * time.Hour}, 999 * time.Hour, 1},
		{evidence.Retention{MaxAge: 1000 * time.Hour}, 1001 * time.Hour, 0},
	} {
		if _, err := a.Retain(t.Context(), tt.limits, "l", needs, noon.Add(tt.after)); err != nil {
			t.Fatal(err)
		}
		if left, err := a.Pictures(t.Context(), "p", "ses_1"); err != nil || len(left) != tt.want {
			t.Errorf("%+v, after %v: left are %+v, %v", tt.limits, tt.after, left, err)
		}
	}
}

// A bundle that could not have the pictures of its session does not name them. They stay as long as it does, and what
// came after it does not.
func TestPicturesThatABundleLacksStayWithIt(t *testing.T) {
	s, _ := openDir(t)
	a := evidence.NewArchive(storetest.Spool(t), s, zerolog.Nop())
	put := func(session string, at time.Time) evidence.Picture {
		t.Helper()
		p, err := a.PutPicture(t.Context(), picture(session, 7, at), []byte("image"), "")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	kept := put("ses_1", noon)
	seal := func(evidenceID string, at time.Time, lacks bool, before evidence.Link) evidence.Link {
		t.Helper()
		b, err := a.New(evidence.Manifest{EvidenceID: evidenceID, ProfileID: "p", LeaseToken: 8, At: at, PreviousEvidenceID: before.EvidenceID, PreviousManifestSHA256: before.SHA256})
		if err != nil {
			t.Fatal(err)
		}
		if lacks {
			b.AddMissing(evidence.PicturesPart, "pictures", "the store did not answer")
		}
		m, sum, err := a.Save(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		return evidence.Link{EvidenceID: m.EvidenceID, SHA256: sum}
	}
	first := seal("ev_lacks", noon.Add(time.Hour), true, evidence.Link{})
	put("ses_2", noon.Add(2*time.Hour))
	seal("ev_later", noon.Add(1500*time.Hour), false, first)
	for _, tt := range []struct {
		after time.Duration
		want  int
	}{{900 * time.Hour, 1}, {2000 * time.Hour, 1}, {2001 * time.Hour, 0}} { // the second removes the bundle
		if _, err := a.Retain(t.Context(), evidence.Retention{MaxAge: 1000 * time.Hour}, "l", needNone, noon.Add(tt.after)); err != nil {
			t.Fatal(err)
		}
		left, err := a.Pictures(t.Context(), "p", "ses_1", "ses_2")
		if err != nil || len(left) != tt.want || len(left) > 0 && left[0].EvidenceID != kept.EvidenceID {
			t.Errorf("after %v: left are %+v, %v, want %d", tt.after, left, err, tt.want)
		}
	}
}

// A picture that two bundles name goes with the later bundle.
func TestRetainLeavesWhatAnotherBundleNames(t *testing.T) {
	s, _, a, head, named, _ := lostSession(t)
	spool := storetest.Spool(t)
	both := evidence.NewArchive(spool, s, zerolog.Nop())
	b, err := spool.New(evidence.Manifest{
		ProfileID: "p", LeaseToken: 9, At: noon.Add(1500 * time.Hour), PreviousEvidenceID: head.EvidenceID, PreviousManifestSHA256: head.SHA256,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.SetPictures(named[:1])
	m, sum, err := both.Save(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	if done, err := a.Retain(t.Context(), evidence.Retention{MaxAge: 1000 * time.Hour}, "l", needNone, noon.Add(2000*time.Hour)); err != nil || done.Removed < 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	r, err := evidence.Verify(t.Context(), s, "p", evidence.Link{EvidenceID: m.EvidenceID, SHA256: sum})
	if err != nil || !r.OK() || r.CutOff == nil || r.CutOff.Bundles != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if left, err := a.Pictures(t.Context(), "p", "ses_1"); err != nil || len(left) != 1 || left[0].EvidenceID != named[0].EvidenceID {
		t.Errorf("%+v, %v", left, err)
	}
}

func TestPicturesComeAfterTheBundleOfTheirSession(t *testing.T) {
	m := func(id, reason string, token uint64, minute int) evidence.Manifest {
		return evidence.Manifest{EvidenceID: id, RecoveryReason: reason, LeaseToken: token, At: noon.Add(time.Duration(minute) * time.Minute)}
	}
	list := []evidence.Manifest{
		m("anchor", evidence.RetentionReason, 9, 9), m("early", evidence.PictureReason, 7, 1), m("late", evidence.PictureReason, 7, 8),
		m("lost", "connection_lost", 7, 5), m("living", evidence.PictureReason, 8, 6), m("before", "released", 6, 0),
	}
	evidence.Newest(list)
	var got []string
	for _, m := range list {
		got = append(got, m.EvidenceID)
	}
	if want := "living lost late early before anchor"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// TestVerifyBesideTheRemovalOfPictures: a bundle's pictures are removed before it, and those that no
// bundle names with their session.
func TestVerifyBesideTheRemovalOfPictures(t *testing.T) {
	for _, c := range []struct {
		name string
		at   func(named, other string) beside
		drop bool // the picture of another session, and not the bundle with its pictures
	}{
		{"the manifest of a bundle's picture", func(named, _ string) beside { return beside{atManifest: named} }, false},
		{"the part of a bundle's picture", func(named, _ string) beside { return beside{atPart: named} }, false},
		{"the manifest of another picture", func(_, other string) beside { return beside{atManifest: other} }, true},
		{"the part of another picture", func(_, other string) beside { return beside{atPart: other} }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _, a, head, named, other := lostSession(t)
			later, newest := storetest.Seal(t, storetest.Spool(t), "p", "ev_later", 9, head)
			if err := s.Put(t.Context(), later); err != nil {
				t.Fatal(err)
			}
			reader := c.at(named[0].EvidenceID, other.EvidenceID)
			reader.Reader, reader.do = s, func() {
				var err error
				if c.drop {
					err = a.DropPictures(t.Context(), "p", other)
				} else {
					_, err = a.Retain(t.Context(), evidence.Retention{MaxBytes: 1}, "l", needNone, noon)
				}
				if err != nil {
					t.Error(err)
				}
			}
			if r, err := evidence.Verify(t.Context(), &reader, "p", newest); err != nil || !r.OK() || reader.do != nil {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}
