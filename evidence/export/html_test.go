package export_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"leasehold/evidence"
	"leasehold/evidence/export"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// elements are all that a page may have.
var elements = strings.Fields("html head meta title style body header footer h1 h2 h3 p b br code span ul li dl dt dd figure figcaption img div details summary table thead tbody tr th td")

// checkPage reads a page as a browser does, and fails if anything in it could run, load or
// lead anywhere.
func checkPage(t *testing.T, page string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if !slices.Contains(elements, n.Data) {
			t.Errorf("the page has an element %s", n.Data)
		}
		for _, a := range n.Attr {
			switch {
			case a.Key == "src" && n.Data == "img" && (strings.HasPrefix(a.Val, "data:image/jpeg;base64,") || strings.HasPrefix(a.Val, "data:image/png;base64,")):
			case slices.Contains([]string{"class", "lang", "charset", "http-equiv", "content", "name", "alt", "open", "colspan"}, a.Key):
			default:
				t.Errorf("the page has %s %s=%.80q", n.Data, a.Key, a.Val)
			}
		}
	}
	if strings.ContainsAny(page, "\u202e\x1b") {
		at := strings.IndexAny(page, "\u202e\x1b")
		t.Errorf("the page has characters that turn the text around them: %.200q", page[max(0, at-80):])
	}
}

func TestThePageSaysWhatAPersonNeeds(t *testing.T) {
	h := newHouse(t, evidence.Keys{})
	page := h.export(t, export.Request{EvidenceID: "ev_2", Format: export.HTML})
	checkPage(t, page)
	for _, want := range []string{
		"verified: all parts have the SHA-256", "the one that the lease record names", "Since the safe checkpoint cart_loaded", "POST https://shop.example/pay",
		"manual review", "an unsafe request was sent", "chrome gone", "asks for code", "approve by Ana", "while the session lived", "the renderer was busy", "a password on https://shop.example/cart",
		"screenshot-2.jpg: https://shop.example/pay: it is no picture", h.records.record.EvidenceSHA256, "and never sent",
		`default-src &#39;none&#39;; img-src data:; style-src &#39;sha256-`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	if strings.Contains(page, "task_of_another") {
		t.Error("the page has an event of another session")
	}
	if n := strings.Count(page, "data:image/jpeg;base64,"); n != 2 {
		t.Errorf("%d pictures, want the screenshot and the one of the living session", n)
	}
	top, _, _ := strings.Cut(page, "<details")
	if strings.Contains(top, "https://shop.example/search") {
		t.Error("what the checkpoint vouches for stands among what came since")
	}
	if !strings.Contains(top, "data:image/jpeg") || !strings.Contains(top, "POST https://shop.example/pay") {
		t.Error("the picture and what was sent are not at the top")
	}
}

// FuzzPage puts any text wherever the page shows one from outside.
func FuzzPage(f *testing.F) {
	f.Add(hostile)
	f.Add("javascript:alert(1)//'\" onerror=x <img src=http://evil>")
	f.Add("--></title></style><!--")
	f.Add("\xff\x00\u2066{{template \"top\"}}")
	f.Fuzz(func(t *testing.T, text string) {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf(`{"kind":"dialog","name":%[1]s,"text":%[1]s,"url":%[1]s}`+"\n"+`{"kind":"request","method":%[1]s,"url":%[1]s}`+"\n", quoted)
		m := evidence.Manifest{
			EvidenceID: "ev_1", ProfileID: text, SessionID: text, AccountID: text, OldTaskID: text, OldWorkerID: text, LastKnownURL: text, LastKnownStep: text,
			RecoveryReason: text, Outcome: text, Principal: text, ProxyID: text, PreviousEvidenceID: text,
			Found: []evidence.Found{{Name: text, Answer: text, How: text}}, Pages: []evidence.PageResult{{Title: text, URL: text, Screenshot: "s.jpg"}},
			StateChanged: &evidence.StateChange{Answer: text, How: text},
			Parts:        []evidence.Part{{Name: "s.jpg", Kind: evidence.KindScreenshot}, {Name: "j", Kind: evidence.KindJournal}, {Name: "d", Kind: text, Missing: text}},
		}
		raw, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		from := export.Source{Reader: fakeStore{raw: raw, part: func(name string) []byte {
			if name == "j" {
				return []byte(line)
			}
			return []byte(text)
		}}, Records: &records{record: api.Profile{Record: lease.Record{HumanReview: lease.HumanReview{Review: &lease.Review{EvidenceID: "ev_1", Decision: text, Reviewer: text, Note: text}}}}}}
		e, err := export.Prepare(t.Context(), from, export.Request{EvidenceID: "ev_1", Format: export.HTML, Unverified: true})
		if err != nil {
			t.Fatal(err)
		}
		var page strings.Builder
		if err := e.Write(t.Context(), &page); err != nil {
			t.Fatal(err)
		}
		checkPage(t, page.String())
	})
}

// fakeStore has one bundle, whose parts are made when they are asked for.
type fakeStore struct {
	raw  []byte
	part func(name string) []byte
}

func (s fakeStore) Manifest(_ context.Context, id string) ([]byte, error) {
	if id != "ev_1" {
		return nil, evidence.ErrNotFound
	}
	return s.raw, nil
}

func (s fakeStore) Part(_ context.Context, _, name string) ([]byte, error) { return s.part(name), nil }

func (s fakeStore) List(context.Context, string) ([]evidence.Manifest, error) { return nil, nil }

// A large bundle is written part by part: memory does not grow with it.
func TestMemoryDoesNotGrowWithTheBundle(t *testing.T) {
	const parts, size = 20, 1 << 20
	part := func(string) []byte { return slices.Concat([]byte("\xff\xd8\xff"), make([]byte, size)) }
	m := evidence.Manifest{EvidenceID: "ev_1", ProfileID: "p"}
	sum := sumOf(part(""))
	for i := range parts {
		m.Parts = append(m.Parts, evidence.Part{Name: fmt.Sprintf("screenshot-%d.jpg", i), Kind: evidence.KindScreenshot, MediaType: "image/jpeg", SHA256: sum})
	}
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []export.Format{export.HTML, export.Zip} {
		e, err := export.Prepare(t.Context(), export.Source{Reader: fakeStore{raw, part}, Records: &records{}}, export.Request{EvidenceID: "ev_1", Format: format})
		if err != nil {
			t.Fatal(err)
		}
		w := &weighed{every: 4 << 20}
		if err := e.Write(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if w.written < parts*size {
			t.Errorf("%s: only %d bytes were written", format, w.written)
		}
		if w.most > w.first+6*size {
			t.Errorf("%s: the heap grew from %d to %d bytes", format, w.first, w.most)
		}
	}
}

// weighed notes how much memory is used while it is written to.
type weighed struct {
	every, written, next uint64
	first, most          uint64
}

var _ io.Writer = (*weighed)(nil)

func (w *weighed) Write(b []byte) (int, error) {
	if w.written >= w.next {
		w.next += w.every
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		if w.first == 0 {
			w.first = s.HeapAlloc
		}
		w.most = max(w.most, s.HeapAlloc)
	}
	w.written += uint64(len(b))
	return len(b), nil
}
