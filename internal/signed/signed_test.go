package signed_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"leasehold/internal/signed"
)

var key = signed.New([32]byte{1, 2, 3})

func TestASignatureIsAboutContentKindNameAndKey(t *testing.T) {
	content := []byte("42\n{}\n")
	said := key.Sign(signed.Floor, "p", content)
	if got, err := key.Open(signed.Floor, "p", said); err != nil || !bytes.Equal(got, content) || len(said) != len(content)+signed.HeaderSize {
		t.Fatalf("%q, %v", got, err)
	}
	other := signed.New([32]byte{1, 2, 4})
	for name, open := range map[string]func() ([]byte, error){
		"another name":  func() ([]byte, error) { return key.Open(signed.Floor, "q", said) },
		"another kind":  func() ([]byte, error) { return key.Open(signed.Browser, "p", said) },
		"another key":   func() ([]byte, error) { return other.Open(signed.Floor, "p", said) },
		"name for kind": func() ([]byte, error) { return key.Open("floo", "rp", said) },
		"no signature":  func() ([]byte, error) { return key.Open(signed.Floor, "p", content) },
		"nothing":       func() ([]byte, error) { return key.Open(signed.Floor, "p", nil) },
		"longer":        func() ([]byte, error) { return key.Open(signed.Floor, "p", append(slices.Clone(said), ' ')) },
	} {
		if got, err := open(); !errors.Is(err, signed.ErrNotAuthentic) || got != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for i := range said {
		changed := slices.Clone(said)
		changed[i] ^= 1
		if _, err := key.Open(signed.Floor, "p", changed); !errors.Is(err, signed.ErrNotAuthentic) {
			t.Errorf("byte %d changed: %v", i, err)
		}
		if _, err := key.Open(signed.Floor, "p", said[:i]); !errors.Is(err, signed.ErrNotAuthentic) {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
	}
}

func TestALineOfAChainIsAboutAllBefore(t *testing.T) {
	all := func(lines ...string) (all []string) {
		c := key.Chain(signed.PipeLog, "s")
		for _, l := range lines {
			all = append(all, c.Next(l))
		}
		return all
	}
	want := all("a", "b", "c")
	if got := all("a", "b", "c"); !slices.Equal(got, want) {
		t.Errorf("%v, then %v", want, got)
	}
	if got := all("x", "b", "c"); got[1] == want[1] || got[2] == want[2] {
		t.Error("a changed line leaves the next ones as they are")
	}
	if key.Chain(signed.PipeLog, "t").Next("a") == want[0] || key.Chain(signed.Floor, "s").Next("a") == want[0] {
		t.Error("another file has the same signatures")
	}
}

func TestAKeyIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	file := signed.NewFile(dir)
	if _, err := file.Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%v", err)
	}
	made, err := file.Make()
	if err != nil {
		t.Fatal(err)
	}
	said := made.Sign(signed.Floor, "p", nil)
	same := func(k *signed.Key, err error) {
		t.Helper()
		if err == nil {
			_, err = k.Open(signed.Floor, "p", said)
		}
		if err != nil {
			t.Errorf("another key: %v", err)
		}
	}
	same(file.Read())
	same(file.Make())
	for path, mode := range map[string]fs.FileMode{file.Path(): 0o600, filepath.Dir(file.Path()): fs.ModeDir | 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if b, err := os.ReadFile(file.Path()); err != nil || len(b) != 32 || bytes.Equal(b, make([]byte, 32)) {
		t.Errorf("%x, %v", b, err)
	}
	other, err := signed.NewFile(t.TempDir()).Make()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Open(signed.Floor, "p", said); err == nil {
		t.Error("two hosts have the same key")
	}
	if err := file.Has(made); err != nil {
		t.Errorf("the key is in its file: %v", err)
	}
	if err := file.Has(other); err == nil || !strings.Contains(err.Error(), "is not the key with which this launcher signs") {
		t.Errorf("another host's key: %v", err)
	}
	if err := os.Remove(file.Path()); err != nil || !errors.Is(file.Has(made), fs.ErrNotExist) {
		t.Errorf("no key: %v, %v", err, file.Has(made))
	}
}

func TestAKeyThatOthersMayKnowIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(file string) error{
		"readable by others": func(file string) error { return os.Chmod(file, 0o644) },
		"its folder open":    func(file string) error { return os.Chmod(filepath.Dir(file), 0o755) },
		"of another user":    func(file string) error { return os.Chown(file, 12345, 0) },
		"a link": func(file string) error {
			return errors.Join(os.Rename(file, file+".x"), os.Symlink(file+".x", file))
		},
		"cut short": func(file string) error { return os.Truncate(file, 31) },
	} {
		t.Run(name, func(t *testing.T) {
			file := signed.NewFile(t.TempDir())
			_, err := file.Make()
			if err := errors.Join(err, spoil(file.Path())); err != nil {
				t.Fatal(err)
			}
			if _, err := file.Read(); err == nil {
				t.Error("it is used")
			}
			if _, err := file.Make(); err == nil {
				t.Error("it is used, or replaced")
			}
		})
	}
}

// FuzzOpen checks that nothing passes but what Sign has made.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("42\n"))
	f.Add(key.Sign(signed.Browser, "p", []byte("42\n")))
	f.Add(key.Sign(signed.Floor, "p", []byte("42\n"))[:80])
	f.Fuzz(func(t *testing.T, b []byte) {
		content, err := key.Open(signed.Floor, "p", b)
		if err == nil && !bytes.Equal(key.Sign(signed.Floor, "p", content), b) {
			t.Errorf("%q passes, with %q", b, content)
		}
		if claimed, has := signed.Claimed(b); !has && !bytes.Equal(claimed, b) || has && len(claimed)+signed.HeaderSize != len(b) {
			t.Errorf("%q claims %q", b, claimed)
		}
		if got, err := key.Open(signed.Floor, "p", key.Sign(signed.Floor, "p", b)); err != nil || !bytes.Equal(got, b) {
			t.Errorf("signed, %q is %q, %v", b, got, err)
		}
	})
}

func BenchmarkSign(b *testing.B) {
	content := make([]byte, 10<<10) // of a prepared floor
	for b.Loop() {
		key.Sign(signed.Floor, "p", content)
	}
}

func BenchmarkChain(b *testing.B) {
	c := key.Chain(signed.PipeLog, "s")
	for b.Loop() {
		c.Next("pause 0123456789ABCDEF0123456789ABCDEF interception-job-1.0 plain")
	}
}
