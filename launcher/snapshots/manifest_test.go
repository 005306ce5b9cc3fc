package snapshots

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// sample is a manifest with everything in it.
func sample() Manifest {
	chunk := Chunk{Name: strings.Repeat("ab", nameSize), Token: 7, Size: 10}
	return Manifest{
		Format: Format, Dirs: []string{"Default", "Default/Local Storage"},
		Tree: []File{
			{Path: "Default/Cookies", Size: 20, Chunks: []Chunk{chunk, chunk}},
			{Path: "Local State"}, {Path: pathText("\xff"), Executable: true, Size: 10, Chunks: []Chunk{chunk}},
		},
		Extras: []File{{Path: "session-cookies", Size: 10, Chunks: []Chunk{chunk}}},
		Snapshot: Snapshot{
			ID: "snap_01J", Previous: "snap_01H", ProfileID: "p.1", Token: 7, SessionID: "ses_1", LauncherID: "a", ChromeVersion: "156.0.1.1",
			CreatedAt: time.Unix(1e9, 0).UTC(), Files: 3, Bytes: 30,
		},
	}
}

func TestAManifestIsReadAsItWasWritten(t *testing.T) {
	raw, err := sample().encode()
	if err != nil {
		t.Fatal(err)
	}
	m, err := DecodeManifest(raw)
	if err != nil || !reflect.DeepEqual(m, sample()) {
		t.Errorf("%+v, %v", m, err)
	}
}

// What cannot be the manifest of a profile is refused, above all a path that leads out.
func TestAManifestThatCannotBe(t *testing.T) {
	for name, change := range map[string]func(*Manifest){
		"a path that leads out":        func(m *Manifest) { m.Tree[0].Path = "../Cookies" },
		"a path that leads out late":   func(m *Manifest) { m.Tree[0].Path = "Default/../../Cookies" },
		"an absolute path":             func(m *Manifest) { m.Tree[0].Path = "/etc/passwd" },
		"a quoted absolute path":       func(m *Manifest) { m.Tree[0].Path = `"/etc/passwd"` },
		"a quoted path that leads out": func(m *Manifest) { m.Tree[0].Path = `"\x2e\x2e/x"` },
		"no path":                      func(m *Manifest) { m.Tree[0].Path = "" },
		"the profile itself":           func(m *Manifest) { m.Tree[0].Path = "." },
		"a path of many forms":         func(m *Manifest) { m.Tree[0].Path = "Default//Cookies" },
		"a zero byte":                  func(m *Manifest) { m.Tree[0].Path = "Default/a\x00b" },
		"a file twice":                 func(m *Manifest) { m.Tree[0].Path = "Local State" },
		"a file in no directory":       func(m *Manifest) { m.Tree[0].Path = "Profile 1/Cookies" },
		"a file in a file":             func(m *Manifest) { m.Tree[2].Path = "Local State/x" },
		"a directory in none":          func(m *Manifest) { m.Dirs = []string{"Default", "Profile 1/x"} },
		"a directory twice":            func(m *Manifest) { m.Dirs = []string{"Default", "Default", "Default/Local Storage"} },
		"a file that is a directory":   func(m *Manifest) { m.Tree[1].Path = "Default" },
		"another size":                 func(m *Manifest) { m.Tree[0].Size = 19 },
		"another number of bytes":      func(m *Manifest) { m.Bytes = 31 },
		"another number of files":      func(m *Manifest) { m.Files = 2 },
		"another format":               func(m *Manifest) { m.Format = 2 },
		"a profile that cannot be":     func(m *Manifest) { m.ProfileID = "../p" },
		"a snapshot that cannot be":    func(m *Manifest) { m.ID = "snap_../x" },
		"an extra that leads out":      func(m *Manifest) { m.Extras[0].Path = "../x" },
		"a long name":                  func(m *Manifest) { m.LauncherID = strings.Repeat("x", 300) },
	} {
		m := sample()
		change(&m)
		raw, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeManifest(raw); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, chunk := range []string{"", "x-1-1", strings.Repeat("ab", 20) + "-1", strings.Repeat("AB", 20) + "-1-1", strings.Repeat("ab", 20) + "-01-1", strings.Repeat("ab", 20) + "-1-0", strings.Repeat("ab", 20) + "-1-999999999", strings.Repeat("ab", 20) + "-1-+1", "../../../../etc/passwd-1-1"} {
		if err := new(Chunk).UnmarshalText([]byte(chunk)); err == nil {
			t.Errorf("chunk %q was read", chunk)
		}
	}
}

// Whatever is read as a manifest stays inside of the profile, and is written as it was read.
func FuzzManifest(f *testing.F) {
	raw, err := sample().encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(bytes.ReplaceAll(raw, []byte("Default"), []byte("..")))
	f.Add(bytes.ReplaceAll(raw, []byte("Local State"), []byte(`\"a\"`)))
	f.Add([]byte(`{"format":1}`))
	f.Add([]byte(`{"format":2,"tree":[]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := DecodeManifest(raw)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrFormat) {
				t.Fatalf("%v has no name", err)
			}
			return
		}
		for _, file := range m.Tree {
			if p, err := realPath(file.Path); err != nil || strings.HasPrefix(p, "/") || strings.HasPrefix(p, "..") && (p == ".." || p[2] == '/') || strings.Contains("/"+p+"/", "/../") {
				t.Fatalf("path %q, %v", file.Path, err)
			}
		}
		again, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		n, err := DecodeManifest(again)
		if err != nil {
			t.Fatalf("what was written is not read: %v", err)
		}
		if once, _ := n.encode(); !bytes.Equal(once, again) {
			t.Fatalf("%s, then %s", again, once)
		}
	})
}

// FuzzHead reads lists of snapshots.
func FuzzHead(f *testing.F) {
	raw, err := json.Marshal(head{Format: Format, ProfileID: "p.1", Token: 7, Snapshots: []entry{{sample().Snapshot, sample().Tree[0].Chunks}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		h, err := decodeHead("p.1", raw)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrFormat) {
				t.Fatalf("%v has no name", err)
			}
			return
		}
		for _, e := range h.Snapshots {
			if e.ProfileID != "p.1" || e.Token > h.Token {
				t.Fatalf("%+v", e)
			}
		}
	})
}

// Cuts move with the content: what is inserted changes the chunks around it alone, and
// who has another key sees other sizes.
func TestCutsMoveWithTheContent(t *testing.T) {
	data := make([]byte, 4<<20)
	state := uint64(1)
	for i := range data {
		state = state*6364136223846793005 + 1442695040888963407
		data[i] = byte(state >> 56)
	}
	cuts := func(c *codec, data []byte) (names map[string]bool, sizes []int) {
		names = map[string]bool{}
		total := 0
		err := split(bytes.NewReader(data), c.cuts, func(piece []byte) error {
			names[c.name(piece)] = true
			sizes = append(sizes, len(piece))
			total += len(piece)
			if len(piece) > largestChunk {
				t.Errorf("a chunk of %d bytes", len(piece))
			}
			return nil
		})
		if err != nil || total != len(data) {
			t.Errorf("%d bytes in chunks, want %d; %v", total, len(data), err)
		}
		return names, sizes
	}
	key := NewKey()
	before, sizes := cuts(key.of("p"), data)
	after, _ := cuts(key.of("p"), append(append(bytes.Clone(data[:2<<20]), "inserted"...), data[2<<20:]...))
	gone := 0
	for name := range before {
		if !after[name] {
			gone++
		}
	}
	if gone > 3 || len(before) < 20 {
		t.Errorf("%d of %d chunks changed", gone, len(before))
	}
	others, otherSizes := cuts(key.of("q"), data)
	for name := range before {
		if others[name] {
			t.Error("two profiles have a chunk of the same name")
		}
	}
	if reflect.DeepEqual(sizes, otherSizes) {
		t.Error("two profiles have chunks of the same sizes")
	}
	for _, n := range []int{0, 1, smallestChunk - 1, smallestChunk, smallestChunk + 1, largestChunk} {
		cuts(key.of("p"), data[:n])
	}
}
