package checkpoint_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"leasehold/checkpoint"
	"leasehold/internal/durable"
	"leasehold/internal/test/smalldisk"
)

// A journal goes on in the space that is kept free, and one that met a full disk goes on
// when there is room again: what was written before and after is whole.
func TestAJournalOnAFullDisk(t *testing.T) {
	dir := smalldisk.Run(t, "8m")
	if dir == "" {
		return
	}
	path := filepath.Join(dir, "ses.journal")
	j, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	n := 0
	write := func() error {
		n++
		_, err := j.Append(checkpoint.Entry{Kind: checkpoint.KindURL, URL: fmt.Sprintf("https://shop.example/%01000d", n)})
		return err
	}
	written := func(what string, want int) {
		t.Helper()
		entries, err := checkpoint.Read(path)
		if err != nil || len(entries) != want || len(j.Entries()) != want {
			t.Errorf("%s: %d entries on the disk, %d known, %v; want %d", what, len(entries), len(j.Entries()), err, want)
		}
	}
	reserve, err := durable.KeepReserve(filepath.Join(dir, "reserve"), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if whole, err := reserve.Fill(0); !whole || err != nil {
		t.Fatalf("filled whole: %v, %v; want true, and no error", whole, err)
	}
	durable.UseReserve(reserve)
	defer durable.UseReserve(nil)
	empty := smalldisk.Fill(t, dir)
	for range 20 { // more than the rest of the file's last block
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	written("in the reserve", 20)
	smalldisk.Fill(t, dir)
	whole := n
	for err = nil; err == nil; whole++ {
		err = write()
	}
	whole--
	if !durable.Full(err) {
		t.Fatalf("error %v, want that of a full disk", err)
	}
	if err := write(); !durable.Full(err) {
		t.Fatalf("error %v, want that of a full disk", err)
	}
	written("on a full disk", whole)
	empty()
	for range 3 {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	written("with room again", whole+3)
}
