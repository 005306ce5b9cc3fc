package travel

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"leasehold/internal/test/leasetest"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/host"
	"leasehold/launcher/profiledir"
	"leasehold/lease"
)

// A snapshot that is named while its profile is put aside may be on its way to a store that answers late:
// it is not stored once that is done, whatever the record said of snapshots before.
func TestAWriteThatNamesASnapshotIsTooLateOnceTheProfileIsPutAside(t *testing.T) {
	for name, before := range map[string]string{"it is the first one": "", "there is another one": "snap_before"} {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		root, err := profiledir.Open(filepath.Join(t.TempDir(), "profiles"), testkey.Key)
		must(err)
		_, err = root.Create("p")
		must(err)
		store := leasetest.New(t)
		s := &Service{host: &host.Host{ID: "here", Root: root, Store: store}}
		lock, err := root.Lock("p")
		must(err)
		entry := store.Put(lease.Record{ProfileID: "p", State: lease.Available, Home: "here", SnapshotID: before})
		var named lease.Record
		must(s.putAside(t.Context(), lock, func() error {
			var err error
			if entry, err = store.Get(t.Context(), "p"); err == nil {
				named, err = entry.Record.Snapshotted("snap_1", 0, 0)
			}
			if err == nil {
				_, err = lock.Archive(time.Now(), nil)
			}
			return err
		}))
		must(lock.Unlock())
		var moved *lease.MovedError
		if _, err := store.Swap(t.Context(), entry, named); !errors.As(err, &moved) {
			t.Errorf("%s: the late write ended with %v; the record names %q", name, err, store.Records["p"].Record.SnapshotID)
		}
	}
}
