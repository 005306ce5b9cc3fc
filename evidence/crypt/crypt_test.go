package crypt_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"pgregory.net/rapid"

	"leasehold/evidence/crypt"
)

// pair makes a key pair, with the private key in a file.
func pair(t testing.TB) (recipient, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "identity")
	recipient, err := crypt.WriteIdentity(path)
	if err != nil {
		t.Fatal(err)
	}
	return recipient, path
}

func recipients(t testing.TB, texts ...string) *crypt.Recipients {
	t.Helper()
	r, err := crypt.ParseRecipients(texts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func identities(t testing.TB, paths ...string) *crypt.Identities {
	t.Helper()
	i, err := crypt.ReadIdentities(paths)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// Each of several recipients reads what was encrypted, and nobody else does.
func TestWhoCanRead(t *testing.T) {
	oneName, one := pair(t)
	twoName, two := pair(t)
	_, stranger := pair(t)
	to := recipients(t, oneName, twoName, oneName)
	if names := to.Names(); len(names) != 2 {
		t.Errorf("recipients %v", names)
	}
	rapid.Check(t, func(rt *rapid.T) {
		plain := rapid.SliceOfN(rapid.Byte(), 0, 1000).Draw(rt, "plain")
		stored, err := to.Encrypt(plain)
		if err != nil {
			rt.Fatal(err)
		}
		if len(plain) > 8 && bytes.Contains(stored, plain) {
			rt.Fatal("what is stored contains what was encrypted")
		}
		for _, with := range []*crypt.Identities{identities(t, one), identities(t, two), identities(t, stranger, two)} {
			if got, err := with.Decrypt(stored); err != nil || !bytes.Equal(got, plain) {
				rt.Fatalf("%q, %v", got, err)
			}
		}
		for _, with := range []*crypt.Identities{nil, identities(t, stranger)} {
			if _, err := with.Decrypt(stored); !errors.Is(err, crypt.ErrNoKey) {
				rt.Fatalf("a stranger: %v", err)
			}
		}
		at := rapid.IntRange(0, len(stored)-1).Draw(rt, "changed")
		stored[at] ^= 1
		if got, err := identities(t, one).Decrypt(stored); err == nil {
			rt.Fatalf("changed at %d of %d, and read as %q", at, len(stored), got)
		}
	})
}

func TestRefusedKeys(t *testing.T) {
	name, path := pair(t)
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	private, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		texts []string
		want  string
	}{
		{"no key", []string{"me"}, `recipient "me"`},
		{"empty", []string{""}, "want one such as age1"},
		{"two in one", []string{name + "\n" + name}, "one line"},
		{"a private key", []string{strings.TrimSpace(string(private[bytes.Index(private, []byte("AGE-SECRET")):]))}, "this is an identity"},
		{"old and new kinds", []string{name, hybrid.Recipient().String()}, "recipients"},
	} {
		_, err := crypt.ParseRecipients(c.texts)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if r, err := crypt.ParseRecipients(nil); r != nil || err != nil {
		t.Errorf("no recipients: %v, %v", r, err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := crypt.ReadIdentities([]string{path}); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that others may read: %v", err)
	}
	if _, err := crypt.WriteIdentity(path); err == nil {
		t.Error("a key was written over")
	}
	if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, private) {
		t.Errorf("the key changed, or %v", err)
	}
	if _, err := crypt.ParseIdentities([]byte("age-encryption.org/v1\n")); err == nil || !strings.Contains(err.Error(), "itself encrypted") {
		t.Errorf("an encrypted key: %v", err)
	}
}

func FuzzParseIdentities(f *testing.F) {
	_, path := pair(f)
	content, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Add([]byte("AGE-SECRET-KEY-1\n"))
	f.Add([]byte("age-encryption.org/v1\n-> X25519"))
	f.Fuzz(func(t *testing.T, content []byte) {
		with, err := crypt.ParseIdentities(content)
		if err != nil {
			for _, line := range strings.Fields(string(content)) {
				if strings.HasPrefix(line, "AGE-SECRET-KEY-") && len(line) > 30 && strings.Contains(err.Error(), line) {
					t.Fatalf("the error repeats the key: %v", err)
				}
			}
			return
		}
		stored, err := recipients(t, with.Names()...).Encrypt(content)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := with.Decrypt(stored); err != nil || !bytes.Equal(got, content) {
			t.Fatalf("%q, %v", got, err)
		}
	})
}

func FuzzParseRecipients(f *testing.F) {
	name, _ := pair(f)
	f.Add(name)
	f.Add("age1\nage1")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := crypt.ParseRecipients([]string{text})
		if err != nil {
			return
		}
		if again, err := crypt.ParseRecipients(r.Names()); err != nil || len(again.Names()) != 1 {
			t.Fatalf("%q: %v, %v", text, again, err)
		}
	})
}
