package durable_test

import (
	"os"
	"path/filepath"
	"testing"

	"leasehold/internal/durable"
	"leasehold/internal/test/smalldisk"
)

// What has to be written on a full disk is written in the space that was kept for it, for
// as long as there is some; and nothing is given away for the sake of another disk.
func TestAFullDiskLeavesTheReserve(t *testing.T) {
	dir := smalldisk.Run(t, "8m")
	if dir == "" {
		return
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "reserve")
	reserve, err := durable.KeepReserve(path, 3<<20)
	must(err)
	if whole, err := reserve.Fill(6 << 20); whole || err != nil || reserve.Left() != 0 {
		t.Errorf("%v, %v: taken although too little would be left", whole, err)
	}
	if whole, err := reserve.Fill(1 << 20); !whole || err != nil || reserve.Left() != 3<<20 {
		t.Fatalf("%v, %v, %d left", whole, err, reserve.Left())
	}
	empty := smalldisk.Fill(t, dir)
	target := filepath.Join(dir, "record")
	if err := durable.Replace(target, make([]byte, 100_000)); !durable.Full(err) {
		t.Fatalf("without a reserve: %v", err)
	}
	durable.UseReserve(reserve)
	defer durable.UseReserve(nil)
	must(durable.Replace(target, make([]byte, 100_000)))
	if left := reserve.Left(); left != 2<<20 {
		t.Errorf("%d left, want one piece less", left)
	}
	if reserve.Give("/dev/shm") {
		t.Error("given for another disk")
	}
	// Somebody else takes what was given, and more is asked for than there is.
	smalldisk.Fill(t, dir)
	if err := durable.Replace(target+"2", make([]byte, 5<<20)); !durable.Full(err) || reserve.Left() != 0 {
		t.Errorf("%v, %d left; want a full disk and nothing left", err, reserve.Left())
	}
	if reserve.Give(dir) {
		t.Error("given from nothing")
	}

	// A later process finds what there is, and takes it again once there is room.
	reserve, err = durable.KeepReserve(path, 3<<20)
	must(err)
	empty()
	if whole, err := reserve.Fill(1 << 20); !whole || err != nil {
		t.Errorf("%v, %v", whole, err)
	}
	reserve, err = durable.KeepReserve(path, 2<<20)
	must(err)
	if info, err := os.Stat(path); err != nil || info.Size() != 2<<20 || reserve.Left() != 2<<20 {
		t.Errorf("with a smaller size: %v, %v", info, err)
	}
	var none *durable.Reserve
	if whole, err := none.Fill(0); !whole || err != nil || none.Give(dir) || none.Left() != 0 {
		t.Error("a reserve that is not there")
	}
}
