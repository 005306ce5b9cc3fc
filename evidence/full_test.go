package evidence_test

import (
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
