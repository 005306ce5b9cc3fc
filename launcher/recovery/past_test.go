package recovery_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/shape"
	"leasehold/checkpoint/site"
	. "leasehold/launcher/recovery"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/recovery/table"
)

// pasts are the recoveries that the world's recoverer keeps.
func (w *world) pasts() (all []findings.Past) {
	kept, err := w.r.Pasts(w.ctx)
	w.must(err)
	for p := range kept {
		all = append(all, p)
	}
	return all
}

// TestARecoveryIsKeptToBeDecidedAgain: with what was known then the decision is the same, and with a file that
// says what the request does it is another one.
func TestARecoveryIsKeptToBeDecidedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tidy()
	r := shape.Request{Method: "POST", URL: cart, Whole: true, Body: "id=7", Headers: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}}
	k := w.caseOf(Recover)
	k.Journal = func() []checkpoint.Entry {
		return []checkpoint.Entry{
			{Kind: checkpoint.KindURL, URL: cart},
			{Kind: checkpoint.KindRequest, Method: "POST", URL: cart, Shape: shape.Of(r), Plain: site.Plain(r), Text: "left out", Request: "r1"},
		}
	}
	if _, err := w.r.Run(k); err != nil {
		t.Fatal(err)
	}
	i, err := w.r.Inspection(w.leases.record())
	w.must(err)
	all := w.pasts()
	if len(all) != 1 || all[0].Gap != "" || all[0].Outcome != i.Decision || all[0].ProfileID != profile || all[0].Entries[1].Text != "" {
		t.Fatalf("kept is %+v, decided %s", all, i.Decision)
	}
	if d, doubt := all[0].Again(nil); d.Outcome != table.ManualReview {
		t.Errorf("with nothing known: %s, %s", d.Outcome, doubt)
	}
	book, _ := site.NewBook([]site.File{{Name: "shop", Origins: []string{"https://shop.example"}, Requests: []site.Line{{Shape: "POST /cart", Is: site.Read}}}})
	if d, doubt := all[0].Again(book); d.Outcome != table.Release {
		t.Errorf("with a line: %s %q, %s", d.Outcome, d.Reasons, doubt)
	}
}

// TestTheOldestRecoveriesAreNotKept, nor is what somebody else wrote believed.
func TestTheOldestRecoveriesAreNotKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tidy()
	dir := filepath.Join(w.data, "incidents")
	w.must(os.MkdirAll(dir, 0o700))
	for i := range 400 {
		path := filepath.Join(dir, fmt.Sprintf("ev_%d.json", i))
		w.must(os.WriteFile(path, []byte("{}"), 0o600), os.Chtimes(path, time.Time{}, time.Now().Add(-time.Duration(i)*time.Hour)))
	}
	w.r = w.recoverer(func(o *Options) { o.KeepPasts = 100*time.Hour - time.Minute })
	if _, err := w.r.Run(w.caseOf(Recover)); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	w.must(err)
	if all := w.pasts(); len(left) != 101 || len(all) != 1 || all[0].EvidenceID == "" {
		t.Errorf("%d files are left, and %d can be believed", len(left), len(all))
	}
}
