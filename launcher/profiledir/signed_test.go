package profiledir

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"leasehold/internal/signed"
	"leasehold/internal/test/testkey"
	"leasehold/lease"
)

// TestNobodyElsesFloorOrNoteIsBelieved: not that of another profile, not another file of
// the same one, not one from before it was changed, and a floor that is none is replaced
// by Renew alone, and only by a token above the one that it claims.
func TestNobodyElsesFloorOrNoteIsBelieved(t *testing.T) {
	r := open(t)
	p, q := lock(t, r, "p"), lock(t, r, "q")
	if err := errors.Join(p.RaiseFloor(lease.Record{ProfileID: "p", Token: 5, Home: "here"}), q.RaiseFloor(lease.Record{ProfileID: "q", Token: 9}),
		p.SetRunning(Running{PID: 1}), q.SetRunning(Running{PID: 2})); err != nil {
		t.Fatal(err)
	}
	read := func(id, kind string) []byte {
		t.Helper()
		b, err := os.ReadFile(r.file(id, kind))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	floor, note := read("p", "floor"), read("p", "browser")
	lost := signed.New([32]byte{9})
	changed := func(b []byte, old, new string) []byte {
		t.Helper()
		if !bytes.Contains(b, []byte(old)) {
			t.Fatalf("%s is not in %s", old, b)
		}
		return bytes.Replace(b, []byte(old), []byte(new), 1)
	}
	for name, tt := range map[string]struct {
		kind    string
		content []byte
		claimed lease.Token
		home    string
	}{
		"another profile's floor":  {"floor", read("q", "floor"), 9, ""},
		"its own note as floor":    {"floor", note, 0, ""},
		"a higher token":           {"floor", changed(changed(floor, "\n5\n", "\n7\n"), `"lease_token":5`, `"lease_token":7`), 7, "here"},
		"another home":             {"floor", changed(floor, `"here"`, `"hers"`), 5, "hers"},
		"no signature":             {"floor", floor[signed.HeaderSize:], 5, "here"},
		"a lost key's floor":       {"floor", lost.Sign(signed.Floor, "p", floor[signed.HeaderSize:]), 5, "here"},
		"a lost key's note":        {"browser", lost.Sign(signed.Browser, "p", note[signed.HeaderSize:]), 0, ""},
		"no number":                {"floor", []byte("seven\n"), 0, ""},
		"beyond any token":         {"floor", []byte("18446744073709551615\n"), 0, ""},
		"another profile's note":   {"browser", read("q", "browser"), 0, ""},
		"its own floor as note":    {"browser", floor, 0, ""},
		"another process":          {"browser", changed(note, `"pid":1`, `"pid":7`), 0, ""},
		"a note without signature": {"browser", note[signed.HeaderSize:], 0, ""},
	} {
		if err := errors.Join(os.WriteFile(r.file("p", "floor"), floor, 0o600), os.WriteFile(r.file("p", "browser"), note, 0o600), os.WriteFile(r.file("p", tt.kind), tt.content, 0o600)); err != nil {
			t.Fatal(err)
		}
		_, running, noteErr := r.Running("p")
		token, kept, err := r.Kept("p")
		if tt.kind == "browser" {
			if running || !errors.Is(noteErr, signed.ErrNotAuthentic) || err != nil {
				t.Errorf("%s: %v, %v; the floor: %v", name, running, noteErr, err)
			}
			continue
		}
		var damaged *DamagedError
		if !errors.As(err, &damaged) || !errors.Is(err, signed.ErrNotAuthentic) || damaged.Claimed != tt.claimed || damaged.Home != tt.home || token != 0 || kept.Token != 0 || noteErr != nil {
			t.Errorf("%s: %d, %+v, %v (claims %+v); the note: %v", name, token, kept, err, damaged, noteErr)
		}
		if err := p.RaiseFloor(lease.Record{Token: 100}); !errors.As(err, &damaged) {
			t.Errorf("%s: Keep: %v", name, err)
		}
		var fenced *lease.FencedError
		if tt.claimed > 0 {
			if err := p.Renew(lease.Record{Token: tt.claimed - 1}); !errors.As(err, &fenced) {
				t.Errorf("%s: renewed below its claim: %v", name, err)
			}
		}
		if err := p.Renew(lease.Record{ProfileID: "p", Token: tt.claimed + 1}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if token, err := r.Floor("p"); err != nil || token != tt.claimed+1 {
			t.Errorf("%s: renewed: %d, %v", name, token, err)
		}
	}
}

// FuzzFloor checks that a floor file without a signature is never believed, and that what it
// claims stays far from the end of the numbers.
func FuzzFloor(f *testing.F) {
	f.Add([]byte("50\n{\"lease_token\":50,\"state\":\"available\",\"home\":\"h\"}\n"))
	f.Add([]byte("18446744073709551615\n"))
	f.Add(testkey.Key.Sign(signed.Floor, "q", []byte("7\n")))
	f.Add(append(testkey.Key.Sign(signed.Floor, "p", []byte("7\n")), "  \n"...))
	r, err := Open(f.TempDir(), testkey.Key)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(r.file("p", "floor"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		token, _, err := r.Kept("p")
		var damaged *DamagedError
		if !errors.As(err, &damaged) || token != 0 || damaged.Claimed > lease.MaxClaim {
			if content, err := testkey.Key.Open(signed.Floor, "p", unpadded(b)); err == nil {
				if _, _, err := parseFloor(content); err == nil {
					return // a fuzzer that has the key
				}
			}
			t.Errorf("%q: %d, %v", b, token, err)
		}
	})
}
