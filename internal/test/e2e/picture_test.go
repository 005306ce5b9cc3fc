package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/evidence"
	"leasehold/evidence/natsstore"
	"leasehold/lease"
)

// stored is an entry in the list of a profile's evidence.
type stored struct {
	EvidenceID     string      `json:"evidence_id"`
	Token          lease.Token `json:"lease_token"`
	RecoveryReason string      `json:"recovery_reason"`
	LastKnownURL   string      `json:"last_known_url"`
	LastKnownStep  string      `json:"last_known_step"`
	Checkpoint     string      `json:"checkpoint"`
	Parts          []struct{ Name, Missing string }
}

func (s *sidecar) stored(t *testing.T, profile string) []stored {
	t.Helper()
	var list struct{ Items []stored }
	if code := s.call(t, "GET", "/v1/profiles/"+profile+"/evidence", nil, &list); code != 200 {
		t.Fatalf("evidence of %s: status %d", profile, code)
	}
	return list.Items
}

// middle returns the name of the color in the middle of a picture.
func (s *sidecar) middle(t *testing.T, b stored, colors map[string]color.RGBA) string {
	t.Helper()
	var raw []byte
	if code := s.call(t, "GET", "/v1/evidence/"+b.EvidenceID+"/"+b.Parts[0].Name, nil, &raw); code != 200 {
		t.Fatalf("%+v: status %d", b, code)
	}
	img, format, err := image.Decode(bytes.NewReader(raw))
	if err != nil || format != "jpeg" {
		t.Fatalf("%+v: %s, %v", b, format, err)
	}
	at := img.Bounds()
	r, g, bl, _ := img.At(at.Dx()/2, at.Dy()/2).RGBA()
	for name, c := range colors {
		near := func(a uint32, b uint8) bool { return int(a>>8)-int(b) < 12 && int(b)-int(a>>8) < 12 }
		if near(r, c.R) && near(g, c.G) && near(bl, c.B) {
			return name
		}
	}
	return fmt.Sprint(r>>8, g>>8, bl>>8)
}

// TestPicturesOfAVanishedHost: a host vanishes with its launcher, guard, Chrome and disk.
// Another launcher has pictures of its session's page, from the last checkpoint and
// after it, and the person who reviews the profile gets them.
func TestPicturesOfAVanishedHost(t *testing.T) {
	t.Parallel()
	colors := map[string]color.RGBA{"red": {R: 200}, "blue": {B: 200}, "checkout": {G: 200}}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := colors[strings.TrimPrefix(r.URL.Path, "/")]
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<!doctype html><title>colors</title><body style="background:rgb(%d,%d,%d)">`, c.R, c.G, c.B)
	}))
	defer web.Close()
	home, other := pair(t, "--home-timeout", "15s", "--picture-interval", "1s", "--orphan-timeout", "1h")
	ses := home.open(t, "pictured", nil)
	c := dial(t, ses.CDPURL)
	page, _ := c.page(t, web.URL+"/red", "")
	loaded := func(url string) { c.loaded(t, page, url) } // uses the current values of c and page
	loaded(web.URL + "/red")
	c.call(t, page, "Lease.step", map[string]any{"name": "open_red"}, nil)
	c.call(t, page, "Lease.checkpoint", map[string]any{"name": "red_open"}, nil)
	newest := func(what string, fits func(stored) bool) (found stored) {
		t.Helper()
		eventually(t, what, func() error {
			list := other.stored(t, "pictured")
			for _, b := range list {
				if fits(b) {
					found = b
					return nil
				}
			}
			return fmt.Errorf("%+v", list)
		})
		return found
	}
	red := newest("a picture of the checkpoint", func(b stored) bool { return b.Checkpoint == "red_open" })
	if got := other.middle(t, red, colors); got != "red" || red.LastKnownURL != web.URL+"/red" || red.LastKnownStep != "open_red" || uint64(red.Token) != ses.Token || red.RecoveryReason != evidence.PictureReason {
		t.Errorf("it is %s: %+v", got, red)
	}
	c.call(t, page, "Page.navigate", map[string]any{"url": web.URL + "/blue?q=typed+text"}, nil)
	blue := newest("a picture of what changed", func(b stored) bool { return strings.Contains(b.LastKnownURL, "/blue") })
	if got := other.middle(t, blue, colors); got != "blue" || blue.LastKnownURL != web.URL+"/blue?q=REDACTED" || blue.Checkpoint != "" {
		t.Errorf("it is %s: %+v", got, blue)
	}
	// No picture is taken of a sensitive page before it is necessary.
	c.call(t, page, "Page.navigate", map[string]any{"url": web.URL + "/checkout"}, nil)
	loaded(web.URL + "/checkout")
	c.call(t, page, "Lease.checkpoint", map[string]any{"name": "at_checkout", "safe": false}, nil)
	kept := newest("a checkpoint without a picture", func(b stored) bool { return b.Checkpoint == "at_checkout" })
	if !strings.Contains(kept.Parts[0].Missing, "sensitive") || kept.LastKnownURL != web.URL+"/checkout" {
		t.Errorf("%+v", kept)
	}
	eventually(t, "the record", func() error {
		if r := other.record(t, "pictured"); r.LastKnownURL != web.URL+"/checkout" || r.LastKnownStep != "open_red" || r.LastSafeCheckpoint != "red_open" {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})

	home.vanish(t)
	r := other.until(t, "pictured", lease.Quarantined, lease.ManualReview)
	if list := other.stored(t, "pictured"); r.State == lease.Quarantined && (len(list) == 0 || list[len(list)-1].EvidenceID != red.EvidenceID) {
		t.Errorf("in quarantine there is %+v", list)
	}
	r = other.until(t, "pictured", lease.ManualReview)
	if r.LastKnownURL != web.URL+"/checkout" || r.LastKnownStep != "open_red" || r.LastSafeCheckpoint != "red_open" {
		t.Errorf("%+v", r)
	}
	list := other.stored(t, "pictured")
	if len(list) < 3 || len(list) > 1+evidence.KeptPictures || list[0].EvidenceID != r.EvidenceID {
		t.Fatalf("%+v, the record names %s", list, r.EvidenceID)
	}
	var m evidence.Manifest
	if code := other.call(t, "GET", "/v1/evidence/"+r.EvidenceID, nil, &m); code != 200 || len(m.Pictures) != len(list)-1 {
		t.Errorf("%d: %+v", code, m)
	}
	if got := other.middle(t, blue, colors); got != "blue" {
		t.Errorf("the picture is %s", got)
	}
	out, errs, code := other.cli(t, "evidence", "verify", "pictured", "--json")
	var v struct{ Items []evidence.Report }
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != 0 || len(v.Items) != 1 || v.Items[0].Bundles != len(list) || !v.Items[0].HeadKnown {
		t.Errorf("verify: %d %s%s", code, out, errs)
	}
	if out, _, _ := other.cli(t, "show", "pictured"); !strings.Contains(out, "last picture") || !strings.Contains(out, "checkpoint at_checkout") {
		t.Errorf("show:\n%s", out)
	}
	// A missing picture shows, because a bundle names it.
	nc, err := nats.Connect(other.NATS)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	store := natsstore.New(js, natsstore.Config{})
	if err := store.Delete(t.Context(), evidence.Manifest{EvidenceID: blue.EvidenceID, ProfileID: "pictured", Parts: []evidence.Part{{Name: evidence.PicturePart}}}); err != nil {
		t.Fatal(err)
	}
	if out, _, code := other.cli(t, "evidence", "verify", "pictured"); code != 9 || !strings.Contains(out, "bundle_missing "+blue.EvidenceID) {
		t.Errorf("a picture is gone: %d\n%s", code, out)
	}

}

// vanish ends everything of a host at once: launcher, guard and browsers, and the disk
// is lost.
func (s *sidecar) vanish(t *testing.T) {
	t.Helper()
	s.kill(t)
	for _, pid := range append(s.guards(t), s.browsers(t)...) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the host to be gone", func() error {
		if left := append(s.guards(t), s.browsers(t)...); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return os.RemoveAll(s.Dir)
	})
}
