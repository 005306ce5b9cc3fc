package profiledir

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseSingleton(t *testing.T) {
	for _, c := range []struct {
		target, host string
		pid          int
		fails        bool
	}{
		{"vm-32251", "vm", 32251, false},
		{"ip-10-0-0-1.ec2.internal-7", "ip-10-0-0-1.ec2.internal", 7, false},
		{"a--7", "a-", 7, false}, // a host whose name ends with a dash
		{"vm", "", 0, true}, {"-7", "", 0, true}, {"vm-", "", 0, true}, {"vm-0", "", 0, true},
		{"vm-x", "", 0, true}, {"vm-07", "", 0, true}, {"vm-+7", "", 0, true}, {"", "", 0, true}, {"vm-99999999999999999999", "", 0, true},
	} {
		host, pid, err := ParseSingleton(c.target)
		if host != c.host || pid != c.pid || (err != nil) != c.fails {
			t.Errorf("%q: got %q, %d, %v", c.target, host, pid, err)
		}
	}
}

func TestInspectSingleton(t *testing.T) {
	self := os.Getpid()
	for _, c := range []struct {
		name, target             string
		inUse                    Answer
		ps                       []Process
		present, same, alive     Answer
		host                     string
		pid                      int
		plainFile, hostIsUnnamed bool
	}{
		{name: "none", present: No, same: Unknown, alive: No},
		{name: "dead owner", target: "here-4194305", inUse: No, present: Yes, same: Yes, alive: No, host: "here", pid: 4194305},
		{name: "living owner", target: fmt.Sprintf("here-%d", self), inUse: Yes, ps: []Process{{PID: self}}, present: Yes, same: Yes, alive: Yes, host: "here", pid: self},
		{name: "pid of another program", target: fmt.Sprintf("here-%d", self), inUse: No, present: Yes, same: Yes, alive: No, host: "here", pid: self},
		{name: "processes are hidden", target: "here-4194305", inUse: Unknown, present: Yes, same: Yes, alive: Unknown, host: "here", pid: 4194305},
		{name: "another host", target: "there-1-7", inUse: No, present: Yes, same: No, alive: Unknown, host: "there-1", pid: 7},
		{name: "this host under a former name", target: fmt.Sprintf("there-%d", self), inUse: Yes, ps: []Process{{PID: self}}, present: Yes, same: No, alive: Yes, host: "there", pid: self},
		{name: "garbage", target: "garbage", inUse: No, present: Yes, same: Unknown, alive: Unknown},
		{name: "no symlink", plainFile: true, inUse: No, present: Yes, same: Unknown, alive: Unknown},
		{name: "unnamed host", target: "here-7", hostIsUnnamed: true, inUse: No, present: Yes, same: Unknown, alive: Unknown, host: "here", pid: 7},
	} {
		dir := t.TempDir()
		link := filepath.Join(dir, "SingletonLock")
		switch {
		case c.plainFile:
			write(t, link, "x")
		case c.target != "":
			if err := os.Symlink(c.target, link); err != nil {
				t.Fatal(err)
			}
		}
		here := "here"
		if c.hostIsUnnamed {
			here = ""
		}
		s := inspectSingleton(dir, here, Fact{Answer: c.inUse}, c.ps)
		if s.Present.Answer != c.present || s.SameHost.Answer != c.same || s.OwnerAlive.Answer != c.alive || s.Host != c.host || s.PID != c.pid {
			t.Errorf("%s: got %+v", c.name, s)
		}
	}
}

func TestClosedCleanly(t *testing.T) {
	const yes, no = `{"user_experience_metrics.stability.exited_cleanly":true,"x":1}`, `{"user_experience_metrics.stability.exited_cleanly":false}`
	exit := func(s string) string { return `{"profile":{"exit_type":"` + s + `","name":"x"},"other":[]}` }
	for _, c := range []struct {
		name, variations, preferences string
		singleton, want               Answer
		exitType                      string
	}{
		{"all say so", yes, exit("Normal"), No, Yes, "Normal"},
		{"singleton is left", yes, exit("Normal"), Yes, No, "Normal"},
		{"killed within ten seconds", no, exit("Normal"), No, No, "Normal"},
		{"SIGTERM", yes, exit("SessionEnded"), No, No, "SessionEnded"},
		{"crashed", no, exit("Crashed"), Yes, No, "Crashed"},
		{"never opened", "", "", No, Unknown, ""},
		{"no Preferences", yes, "", No, Unknown, ""},
		{"no Preferences, not clean", no, "", No, No, ""},
		{"no Variations", "", exit("Normal"), No, Unknown, "Normal"},
		{"Variations damaged", "{", exit("Normal"), No, Unknown, "Normal"},
		{"Variations of another kind", `{"a":1}`, exit("Normal"), No, Unknown, "Normal"},
		{"Preferences of another kind", yes, `{"profile":{}}`, No, Unknown, ""},
		{"singleton cannot be read", yes, exit("Normal"), Unknown, Unknown, "Normal"},
	} {
		dir := t.TempDir()
		if c.variations != "" {
			write(t, filepath.Join(dir, "Variations"), c.variations)
		}
		if c.preferences != "" {
			write(t, filepath.Join(dir, "Default", "Preferences"), c.preferences)
		}
		got, exitType := closedCleanly(dir, "Default", Fact{Answer: c.singleton})
		if got.Answer != c.want || exitType != c.exitType || (got.How == "" && c.singleton == No) {
			t.Errorf("%s: got %+v, %q", c.name, got, exitType)
		}
	}
}

func TestInspectChangesNothing(t *testing.T) {
	r := open(t)
	missing, err := r.Inspect("none")
	if err != nil || missing.DirectoryPresent.Answer != No || missing.ClosedCleanly.Answer != Unknown || missing.Locked.Answer != No || missing.Singleton.OwnerAlive.Answer != Unknown {
		t.Errorf("no directory: %+v, %v", missing, err)
	}
	if _, err := r.Inspect("../p"); err == nil {
		t.Error("an id that is not valid is inspected")
	}
	path, err := r.Create("p")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, content string
		want          Answer
	}{{"", "", No}, {"Default/Cookies", "", No}, {"Default/Cookies", "SQLite", Yes}} {
		if c.name != "" {
			write(t, filepath.Join(path, c.name), c.content)
		}
		before := tree(t, r.Dir())
		in, err := r.Inspect("p")
		if err != nil || in.DirectoryPresent.Answer != Yes || in.SessionStatePresent.Answer != c.want || in.InUse.Answer != No || in.Locked.Answer != No {
			t.Errorf("%+v: got %+v, %v", c, in, err)
		}
		if after := tree(t, r.Dir()); !maps.Equal(before, after) {
			t.Errorf("changed: %v to %v", before, after)
		}
	}
	if err := os.Symlink(t.TempDir(), filepath.Join(r.Dir(), "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Inspect("link"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a symlink: %v", err)
	}
}

func TestNetworkFilesystem(t *testing.T) {
	if f := NetworkFilesystem("/dev/shm"); f.Answer != No || f.How != "tmpfs" {
		t.Errorf("/dev/shm: %+v", f)
	}
	if f := NetworkFilesystem("/proc"); f.Answer != Unknown {
		t.Errorf("a type that is not known: %+v", f)
	}
	if f := NetworkFilesystem("/no/such/path"); f.Answer != Unknown {
		t.Errorf("no such path: %+v", f)
	}
	var shared []string
	for _, f := range filesystems {
		if f.shared {
			shared = append(shared, f.name)
		}
	}
	for _, name := range []string{"nfs", "smb", "smb2", "cifs", "fuse", "9p", "ceph"} {
		if !slices.Contains(shared, name) {
			t.Errorf("%s is not known as shared", name)
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// tree maps every path below dir to what it is and when it was changed.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err == nil {
			all[path] = fmt.Sprint(fi.Mode(), fi.Size(), fi.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func FuzzParseSingleton(f *testing.F) {
	for _, s := range []string{"vm-32251", "a-b-1", "-1", "vm-", "vm-01"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		host, pid, err := ParseSingleton(target)
		if err != nil {
			return
		}
		if got := fmt.Sprintf("%s-%d", host, pid); got != target || host == "" || pid <= 0 {
			t.Errorf("%q became %q, %d", target, host, pid)
		}
	})
}

func FuzzParseFloor(f *testing.F) {
	for _, s := range []string{"0\n", "42\n", "42", "042\n", "18446744073709551615\n", "7\n{\"lease_token\":7}\n", "7\n{\"lease_token\":8}\n", "7\n{}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		token, kept, err := parseFloor(b)
		if err != nil {
			return
		}
		first, rest, _ := bytes.Cut(b, []byte("\n"))
		if fmt.Sprint(uint64(token)) != string(first) || len(rest) > 0 && kept.Token != token {
			t.Errorf("%q is read as %d with a record of %d", b, token, kept.Token)
		}
	})
}

func FuzzParseVariations(f *testing.F) {
	f.Add([]byte(`{"user_experience_metrics.stability.exited_cleanly":true}`))
	f.Add([]byte(`{"user_experience_metrics":{"stability":{"exited_cleanly":true}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if clean, err := parseVariations(b); err != nil && clean {
			t.Errorf("%q: clean, and %v", b, err)
		}
	})
}

func FuzzParsePreferences(f *testing.F) {
	f.Add([]byte(`{"profile":{"exit_type":"Normal"}}`))
	f.Add([]byte(`{"profile":7}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		exit, err := parsePreferences(b)
		if err == nil && exit != "" && !strings.Contains(strings.ToLower(string(b)), "exit_type") && !strings.Contains(string(b), `\u`) {
			// encoding/json folds case, also beyond ASCII.
			if !strings.ContainsFunc(string(b), func(r rune) bool { return r > 127 }) {
				t.Errorf("%q: exit type %q out of nowhere", b, exit)
			}
		}
	})
}
