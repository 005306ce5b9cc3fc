package sessionfile

import (
	"bytes"
	"os"
	"testing"

	"leasehold/internal/signed"
)

// Cookies that travel are the same at another launcher, which signs them itself; and what
// was there before is gone.
func TestCookiesTravel(t *testing.T) {
	here, there := NewJar(t.TempDir(), signed.New([32]byte{1})), NewJar(t.TempDir(), signed.New([32]byte{2}))
	mine := []cookie{{Name: "session", Value: "v", URL: "https://a.test/"}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(here.save(here.path("p"), signed.Cookies, "p", mine))
	must(there.save(there.path("p"), signed.Cookies, "p", []cookie{{Name: "old"}}))
	must(there.save(there.lasting("p"), signed.Lasting, "p", []cookie{{Name: "old"}}))
	files, err := here.Export("p")
	must(err)
	must(there.Import("p", files))
	must(there.Check("p"))
	again, err := there.Export("p")
	must(err)
	if len(again) != 1 || !bytes.Equal(again["session-cookies"], files["session-cookies"]) || len(files["session-cookies"]) == 0 {
		t.Errorf("%s, want %s", again, files)
	}
	if _, err := os.Stat(there.lasting("p")); !os.IsNotExist(err) {
		t.Errorf("old cookies are left: %v", err)
	}
	must(there.Import("p", nil))
	if none, err := there.Export("p"); err != nil || len(none) != 0 {
		t.Errorf("%s, %v", none, err)
	}
	if err := there.Import("p", map[string][]byte{"session-cookies": []byte("{")}); err == nil {
		t.Error("what is no list of cookies was taken")
	}
}
