package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"leasehold/launcher/snapshots"
	"leasehold/launcher/snapshots/objectstest"
)

// TestAProfileStoreGoesToNATSAndBack, each time with another key.
func TestAProfileStoreGoesToNATSAndBack(t *testing.T) {
	t.Parallel()
	n := &natsServer{dir: t.TempDir(), port: -1}
	n.start(t)
	t.Cleanup(n.stop)
	dir := t.TempDir()
	var keys [3]*snapshots.Key
	for i := range keys {
		key, err := snapshots.WriteKey(filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = key
	}
	tree := objectstest.Profile()
	made, err := objectstest.Seal(t, snapshots.New(snapshots.OpenDir(filepath.Join(dir, "first")), keys[0]), "acct", tree.Write(t), 4)
	if err != nil {
		t.Fatal(err)
	}
	places := []string{"file://" + filepath.Join(dir, "first"), fmt.Sprintf("nats://127.0.0.1:%d", n.port), "file://" + filepath.Join(dir, "last")}
	for i := range 2 {
		out, errs, code := (&sidecar{}).cli(t, "profiles", "copy-store", "--from", places[i], "--from-key", filepath.Join(dir, fmt.Sprint(i)),
			"--to", places[i+1], "--to-key", filepath.Join(dir, fmt.Sprint(i+1)), "--profile", "acct")
		if code != 0 || !strings.HasPrefix(out, "acct: 1 snapshots copied, 0 there before") {
			t.Fatalf("to %s: %d %s%s", places[i+1], code, out, errs)
		}
	}
	to := filepath.Join(dir, "fetched")
	if _, err := snapshots.New(snapshots.OpenDir(filepath.Join(dir, "last")), keys[2]).Fetch(t.Context(), "acct", made.ID, to, snapshots.FetchOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, content := range objectstest.ReadTree(t, to) {
		if tree[name] != content {
			t.Errorf("%s is another one", name)
		}
	}
}
