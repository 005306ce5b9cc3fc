package site

import (
	"os"
	"strings"
	"testing"

	"leasehold/checkpoint/shape"
	"leasehold/deploy/sites"
	"leasehold/internal/test/source"
)

// TestShippedFilesAreRightAndTold: each file can be put as it is, has the name of its file, is named on the
// page about sites, and has nothing that a file which extends it would not take over.
func TestShippedFilesAreRightAndTold(t *testing.T) {
	page, err := os.ReadFile(source.Path("docs/sites.md"))
	if err != nil {
		t.Fatal(err)
	}
	if len(sites.Names()) < 3 {
		t.Errorf("the files in the binary are %q", sites.Names())
	}
	for _, name := range sites.Names() {
		f, err := Shipped(name, "https://here.example")
		if err != nil || f.Name != name || len(f.Requests) == 0 || len(f.Origins) != 1 || f.Origins[0] != "https://here.example" {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
		if f.Identity != nil || len(f.Probes)+len(f.Rehearse)+len(f.Headers) > 0 || f.BearerFrom != "" || f.SignIn != nil || f.Extends != "" {
			t.Errorf("%s: a file that extends it takes over show, requests and sensitive: %+v", name, f)
		}
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/sites.md does not name the shipped file %s", name)
		}
	}
	if _, err := Shipped("pocketbase"); err == nil {
		t.Error("a shipped file without an origin is taken")
	}
	if _, err := Shipped("../sites", "https://here.example"); err == nil || !strings.Contains(err.Error(), "pocketbase") {
		t.Errorf("a file that is not shipped: %v, want the names of those that are", err)
	}
}

// TestAFileExtendsAShippedOne: its own lines come first.
func TestAFileExtendsAShippedOne(t *testing.T) {
	b := book(t, `{"name": "db", "origins": ["https://db.example"], "extends": "phpmyadmin", "requests": [{"shape": "POST /index.php", "where": {"route": "/navigation"}, "is": "write"}]}`)
	for query, want := range map[string]string{"route=/navigation": Write, "route=/lint": Read, "route=/import": Write, "route=/other": ""} {
		r := shape.Request{Method: "POST", URL: "https://db.example/index.php?" + query, Whole: true}
		if got := b.Judge(r, shape.Of(r)).Is; got != want {
			t.Errorf("%s is known as %q, want %q", query, got, want)
		}
	}
}
