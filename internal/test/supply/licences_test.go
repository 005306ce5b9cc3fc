package supply

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	classifier "github.com/google/licenseclassifier/v2"
	"github.com/google/licenseclassifier/v2/assets"
)

// allowed are the licences, by SPDX id, under which a module may be linked into the
// sidecar. They ask for no more than that their text and notices go with the program.
// Another one is a decision: see docs/decisions/2026-11-22-supply-chain.md.
var allowed = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "Unlicense", "Zlib"}

// chosen are modules that leave a choice between licences, and which one is taken.
var chosen = map[string]string{
	// Its file begins with "BSD-3-Clause OR GPL-2.0-only".
	"kernel.org/pub/linux/libs/security/libcap/psx": "BSD-3-Clause",
}

// licences names what a text is, by SPDX id, as far as the classifier recognizes it.
func licences(c *classifier.Classifier, text []byte) []string {
	var found []string
	for _, m := range c.Match(c.Normalize(text)).Matches {
		if m.MatchType == "License" && !slices.Contains(found, m.Name) {
			found = append(found, m.Name)
		}
	}
	slices.Sort(found)
	return found
}

// refused are those of the found licences that are not allowed. Where one of them was
// chosen, that one counts.
func refused(found []string, choice string) []string {
	if slices.Contains(found, choice) {
		found = []string{choice}
	}
	return slices.DeleteFunc(slices.Clone(found), func(id string) bool { return slices.Contains(allowed, id) })
}

// texts makes the classifier once: it reads some hundred licences.
var texts = sync.OnceValues(assets.DefaultClassifier)

func newClassifier(t *testing.T) *classifier.Classifier {
	t.Helper()
	c, err := texts()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEveryLinkedModuleHasAnAllowedLicence(t *testing.T) {
	modules, err := Modules()
	if err != nil {
		t.Fatal(err)
	}
	if len(modules) < 20 {
		t.Fatalf("only %d modules are listed: is %s the sidecar?", len(modules), Command)
	}
	c := newClassifier(t)
	known := map[string][]string{} // many modules have the very same text
	for _, m := range modules {
		files, err := LicenceFiles(m)
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 0 {
			t.Errorf("%s %s has no licence file: nobody may use it", m.Path, m.Version)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name, _ := filepath.Rel(m.Dir, file)
			found, ok := known[string(text)]
			if !ok {
				found = licences(c, text)
				known[string(text)] = found
			}
			switch {
			case len(found) == 0:
				t.Errorf("%s %s: %s is no licence that is known: read it, and decide", m.Path, m.Version, name)
			case len(refused(found, chosen[m.Path])) > 0:
				t.Errorf("%s %s: %s is under %s, which is not in the list of allowed licences", m.Path, m.Version, name, strings.Join(refused(found, chosen[m.Path]), ", "))
			default:
				t.Logf("%s %s: %s: %s", m.Path, m.Version, name, strings.Join(found, ", "))
			}
		}
	}
}

// The check above would also pass if every text were taken for an allowed one.
func TestOtherLicencesAreRefused(t *testing.T) {
	c := newClassifier(t)
	for _, tt := range []struct{ text, choice, refused string }{
		{"MIT/pristine.txt", "", ""},
		{"Apache-2.0/pristine.txt", "", ""},
		{"ISC/license.txt", "", ""},
		{"GPL-2.0/license.txt", "", "GPL-2.0"},
		{"GPL-2.0/license.txt", "GPL-2.0", "GPL-2.0"},
		{"GPL-2.0/license.txt", "MIT", "GPL-2.0"},
		{"AGPL-3.0/license.txt", "", "AGPL-3.0"},
		{"MPL-2.0/pristine.txt", "", "MPL-2.0"},
		{"SSPL-1.0/license.txt", "", "SSPL-1.0"},
	} {
		text, err := assets.ReadLicenseFile("License/" + tt.text)
		if err != nil {
			t.Fatal(err)
		}
		found := licences(c, text)
		if len(found) == 0 || strings.Join(refused(found, tt.choice), " ") != tt.refused {
			t.Errorf("%s: taken for %q, of which %q are refused, want %q", tt.text, found, refused(found, tt.choice), tt.refused)
		}
	}
	if found := licences(c, []byte("You may use this on Tuesdays, if you ask first.")); len(found) != 0 {
		t.Errorf("a text that is no licence is taken for %q", found)
	}
}
