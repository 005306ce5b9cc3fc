package session

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"leasehold/launcher/api"
	"leasehold/launcher/fileroots"
)

// TestWhoseDownloadsGoToTheUsersFolder: those of a person at this host alone. Who came by a sign-in link
// has the pages of the session, and puts no file into the home directory of the sidecar's user.
func TestWhoseDownloadsGoToTheUsersFolder(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	folder := filepath.Join(home, "Downloads")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	roots, err := fileroots.New(fileroots.Options{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name      string
		byHand    *api.ByHand
		otherUser bool
		want      bool
	}{
		{"a worker", nil, false, false},
		{"a person", &api.ByHand{Holder: "ann"}, false, true},
		{"a person, and browsers have another user", &api.ByHand{Holder: "ann"}, true, false},
		{"whoever has a sign-in link", &api.ByHand{Holder: "ann", SignInLink: "lnk_1"}, false, false},
	} {
		f := &hostFiles{roots: roots, otherUser: tt.otherUser, terms: &terms{
			id: "ses_1", profile: "shop", policy: policyOf(api.Manifest{ByHand: tt.byHand}, 0, 0),
		}}
		if err := f.open(); err != nil {
			t.Fatal(err)
		}
		want := f.exchange
		if tt.want {
			want = "" // Chrome's own choice
		}
		if got := f.downloadDir(); got != want {
			t.Errorf("%s: downloads go to %q, want %q", tt.name, got, want)
		}
		if got := slices.Contains(f.ownDirs(), folder); got != tt.want {
			t.Errorf("%s: a confined browser may use the folder: %t", tt.name, got)
		}
		if err := f.remove(); err != nil {
			t.Error(err)
		}
	}
}
