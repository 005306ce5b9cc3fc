package profiledir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFolder(t *testing.T) {
	last := func(name string) string { return `{"profile":{"last_used":"` + name + `","info_cache":{}}}` }
	for name, c := range map[string]struct {
		state, named string
		folders      []string
		want, fails  string
	}{
		"a new directory":                          {want: "Default"},
		"one profile":                              {state: last("Default"), folders: []string{"Default"}, want: "Default"},
		"the last used of two":                     {state: last("Profile 1"), folders: []string{"Default", "Profile 1"}, want: "Profile 1"},
		"a folder of another name":                 {state: last("work@shop.example"), folders: []string{"work@shop.example"}, want: "work@shop.example"},
		"nothing was used last":                    {state: "{}", folders: []string{"Profile 1"}, want: "Default"},
		"a Local State that Chrome would repair":   {state: `{"profile":`, folders: []string{"Profile 1"}, want: "Default"},
		"the last used was removed":                {state: last("Profile 1"), folders: []string{"Default"}, want: "Default"},
		"Chrome's picker was used last":            {state: last("System Profile"), folders: []string{"Default", "System Profile"}, want: "Default"},
		"a guest was last":                         {state: last("Guest Profile"), folders: []string{"Default", "Guest Profile"}, want: "Default"},
		"the directory names one":                  {state: last("Profile 1"), named: "Default", folders: []string{"Default", "Profile 1"}, want: "Default"},
		"the directory names one that is gone":     {state: last("Default"), named: "Profile 1", folders: []string{"Default"}, want: "Profile 1"},
		"the directory names one outside":          {named: "../other", fails: "leasehold_chrome_profile"},
		"a folder that looks like an argument":     {state: last("x --no-sandbox"), folders: []string{"x --no-sandbox"}, fails: "Local State"},
		"a folder that is no name":                 {state: last(".."), folders: nil, fails: "Local State"},
		"one outside of the directory, not a name": {state: last("../p"), folders: nil, want: "Default"},
	} {
		dir := filepath.Join(t.TempDir(), "p")
		for _, folder := range append(c.folders, "") {
			if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if c.state != "" {
			write(t, filepath.Join(dir, "Local State"), c.state)
		}
		if c.named != "" {
			write(t, filepath.Join(dir, folderFile), c.named)
		}
		got, err := Folder(dir)
		if got != c.want || (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %q, %v; want %q, or a failure by %q", name, got, err, c.want, c.fails)
		}
	}
}

// TestWhatIsInspectedIsWhatIsOpened: where Chrome would open Profile 1, nothing is read of Default.
func TestWhatIsInspectedIsWhatIsOpened(t *testing.T) {
	r := open(t)
	path, err := r.Create("p")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(path, "Variations"), `{"user_experience_metrics.stability.exited_cleanly":true}`)
	write(t, filepath.Join(path, "Local State"), `{"profile":{"last_used":"Profile 1"}}`)
	write(t, filepath.Join(path, "Default", "Preferences"), `{"profile":{"exit_type":"Normal"}}`)
	write(t, filepath.Join(path, "Default", "Cookies"), "SQLite")
	write(t, filepath.Join(path, "Profile 1", "Preferences"), `{"profile":{"exit_type":"Crashed"}}`)
	l := lock(t, r, "p")
	check := func(when string) {
		t.Helper()
		in, err := r.Inspect("p")
		if err != nil || in.ExitType != "Crashed" || in.ClosedCleanly.Answer != No || in.SessionStatePresent.Answer != No {
			t.Errorf("%s: %q, %+v, %+v, %v", when, in.ExitType, in.ClosedCleanly, in.SessionStatePresent, err)
		}
		if cookies, err := r.Cookies("p"); err != nil || cookies != nil {
			t.Errorf("%s: %v, %v", when, cookies, err)
		}
	}
	check("before its first start")
	if name, err := l.PinFolder(); err != nil || name != "Profile 1" {
		t.Fatalf("%q, %v", name, err)
	}
	write(t, filepath.Join(path, "Local State"), `{"profile":{"last_used":"Default"}}`)
	check("after a person used another one")
	if name, err := l.PinFolder(); err != nil || name != "Profile 1" {
		t.Errorf("the next start opens %q, %v", name, err)
	}
	write(t, filepath.Join(path, folderFile), "../q")
	in, err := r.Inspect("p")
	if err != nil || in.ClosedCleanly.Answer != Unknown || in.SessionStatePresent.Answer != Unknown {
		t.Errorf("when nobody can tell: %+v, %+v, %v", in.ClosedCleanly, in.SessionStatePresent, err)
	}
	if _, err := l.PinFolder(); err == nil {
		t.Error("it is opened although nobody can tell which")
	}
}
