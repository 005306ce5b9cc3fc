package evidence_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold/evidence"
	"leasehold/internal/durable"
	"leasehold/internal/test/smalldisk"
)

// On a full disk a bundle is sealed with what there is room for, and says of each other part
// why it is missing. Where there is no room for the bundle itself, none is sealed until there
// is.
func TestABundleOnAFullDiskSaysWhatDidNotFit(t *testing.T) {
	dir := smalldisk.Run(t, "4m")
	if dir == "" {
		return
	}
	spool, err := evidence.OpenSpool(filepath.Join(dir, "spool"))
	if err != nil {
		t.Fatal(err)
	}
	b := newBundle(t, spool, "ev_full")
	reserve, err := durable.KeepReserve(filepath.Join(dir, "reserve"), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if whole, err := reserve.Fill(0); !whole || err != nil {
		t.Fatalf("filled whole: %v, %v; want true, and no error", whole, err)
	}
	empty := smalldisk.Fill(t, dir)
	if m, _, err := b.Seal(); !durable.Full(err) {
		t.Fatalf("sealed in no room: %+v, %v", m, err)
	}
	durable.UseReserve(reserve)
	defer durable.UseReserve(nil)
	if err := b.Add("dom-1.html", evidence.KindDOM, "text/html", make([]byte, 2<<20)); !durable.Full(err) {
		t.Errorf("added in no room: %v", err)
	}
	if err := b.Add("lock.json", "lock", "application/json", []byte("{}")); err != nil {
		t.Error(err)
	}
	m, _, err := b.Seal()
	if err != nil || len(m.Parts) != 2 || m.Parts[1].Missing != "" || !strings.Contains(m.Parts[0].Missing, "no space left") || m.Parts[0].SHA256 != "" {
		t.Errorf("%+v, %v", m.Parts, err)
	}
	empty()
	if err := b.Add("late.txt", "output", "text/plain", []byte("x")); err == nil {
		t.Error("a sealed bundle takes more")
	}
}

// Pictures and copies of pages, which are large, do not take so much of the reserve that nothing is left for the
// rest of the bundle.
func TestLargePartsLeaveRoomForTheBundle(t *testing.T) {
	dir := smalldisk.Run(t, "12m")
	if dir == "" {
		return
	}
	spool, err := evidence.OpenSpool(filepath.Join(dir, "spool"))
	must(t, err)
	b := newBundle(t, spool, "ev_large")
	reserve, err := durable.KeepReserve(filepath.Join(dir, "reserve"), 8<<20)
	must(t, err)
	if whole, err := reserve.Fill(0); !whole || err != nil {
		t.Fatalf("filled whole: %v, %v; want true, and no error", whole, err)
	}
	smalldisk.Fill(t, dir)
	if reserve, err = durable.LeftReserve(filepath.Join(dir, "reserve")); err != nil || reserve.Left() != 8<<20 { // as the guard has it
		t.Fatalf("%d left, %v", reserve.Left(), err)
	}
	durable.UseReserve(reserve)
	defer durable.UseReserve(nil)
	if err := b.Add("screenshot-1.jpg", evidence.KindScreenshot, "image/jpeg", make([]byte, 1<<20)); err != nil {
		t.Errorf("there is room for the first picture: %v", err)
	}
	for i := range 6 {
		for kind, name := range map[string]string{evidence.KindScreenshot: "screenshot-%d.png", evidence.KindDOM: "dom-%d.html", evidence.KindDetail: "detail-%d.jpg"} {
			if err := b.Add(fmt.Sprintf(name, i), kind, "application/octet-stream", make([]byte, 1<<20)); err != nil && !durable.Full(err) {
				t.Error(err)
			}
		}
	}
	must(t, b.Add("journal.jsonl", evidence.KindJournal, "application/x-ndjson", make([]byte, 2<<20)))
	m, _, err := b.Seal()
	must(t, err)
	if m.Parts[0].Missing != "" || len(m.Parts) != 20 {
		t.Errorf("%+v", m.Parts)
	}
}

// A bundle that cannot be sealed on a full disk can be discarded there, and then holds nothing of it.
func TestABundleIsDiscardedOnAFullDisk(t *testing.T) {
	dir := smalldisk.Run(t, "4m")
	if dir == "" {
		return
	}
	spool, err := evidence.OpenSpool(filepath.Join(dir, "spool"))
	must(t, err)
	b := newBundle(t, spool, "ev_full")
	must(t, b.Add("lock.json", "lock", "application/json", make([]byte, 64<<10)))
	for i := range 500 { // so that its manifest is larger than what is remembered of the chain
		b.AddMissing(fmt.Sprintf("dom-%d.html", i), evidence.KindDOM, "too late")
	}
	spare := filepath.Join(dir, "spare")
	must(t, os.WriteFile(spare, make([]byte, 16<<10), 0o600))
	smalldisk.Fill(t, dir)
	must(t, os.Remove(spare))
	if _, _, err := b.Seal(); !durable.Full(err) {
		t.Fatalf("sealed in no room: %v", err)
	}
	begun, err := os.ReadFile(filepath.Join(dir, "spool", ".chain", "p.json"))
	if err != nil || !strings.Contains(string(begun), "ev_full") {
		t.Fatalf("its sealing did not begin: %s, %v", begun, err)
	}
	smalldisk.Fill(t, dir)
	must(t, b.Discard())
	if _, err := os.Stat(filepath.Join(dir, "spool", "ev_full")); !os.IsNotExist(err) {
		t.Errorf("it is there: %v", err)
	}
	next := newBundle(t, spool, "ev_next")
	m, _, err := next.Seal()
	if err != nil || len(m.AlsoFollows) > 0 {
		t.Errorf("the next one names what was discarded: %+v, %v", m.AlsoFollows, err)
	}
}
