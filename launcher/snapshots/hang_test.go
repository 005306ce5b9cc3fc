package snapshots

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"leasehold/internal/objects"
)

// hanging is a store that answers nothing.
type hanging struct{ objects.Objects }

func (hanging) Get(ctx context.Context, _ string) ([]byte, string, error) {
	<-ctx.Done()
	return nil, "", ctx.Err()
}

// TestAListComesOrDoesNotInTime: and the error says what to do.
func TestAListComesOrDoesNotInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		_, err := New(hanging{}, NewKey()).List(t.Context(), "p")
		if err == nil || !strings.Contains(err.Error(), "the profile store did not answer within 20s: try again") || time.Since(begun) != headTime {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
	})
}

// TestAWriterThatHangsDoesNotHoldUpOthers: a launcher that has the lock of a folder and stands
// still lets others go when their context ends, and nothing is written then.
func TestAWriterThatHangsDoesNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := OpenDir(t.TempDir())
		if err := d.Put(t.Context(), "a/b", []byte("1"), ""); err != nil {
			t.Fatal(err)
		}
		lock, err := os.Create(filepath.Join(d.root, "a", lockName))
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Put(ctx, "a/b", []byte("2"), versionOf([]byte("1"))); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		if content, _, err := d.Get(t.Context(), "a/b"); string(content) != "1" || err != nil {
			t.Errorf("%q, %v", content, err)
		}
	})
}
