package secrets

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold/evidence/crypt"
)

const good = `- {name: ann, origin: "https://shop.example", username: ann@shop.example, password: hunter2-word, totp: GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ}
- {name: ann, origin: "https://mail.example", username: ann, password: another-word}
`

// TestAFileThatAgeEncrypted is read with the identity that it was encrypted to, and with no other; one
// that others may read is refused.
func TestAFileThatAgeEncrypted(t *testing.T) {
	dir := t.TempDir()
	key := func(name string) (*crypt.Recipients, *crypt.Identities) {
		recipient, err := crypt.WriteIdentity(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		to, err := crypt.ParseRecipients([]string{recipient})
		if err != nil {
			t.Fatal(err)
		}
		with, err := crypt.ReadIdentities([]string{filepath.Join(dir, name)})
		if err != nil {
			t.Fatal(err)
		}
		return to, with
	}
	to, with := key("own")
	_, other := key("other")
	sealed, err := to.Encrypt([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "secrets.age")
	if err := os.WriteFile(path, sealed, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Read(path, with)
	if err != nil || len(s.list) != 2 {
		t.Fatalf("%v, %v", s, err)
	}
	if _, err := Read(path, other); err == nil || !strings.Contains(err.Error(), "no identity opens it") {
		t.Errorf("with another identity: %v", err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path, with); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others may read: %v", err)
	}
	plain := filepath.Join(dir, "plain.yaml")
	if err := os.WriteFile(plain, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(plain, with); err == nil || !strings.Contains(err.Error(), "want a file that age has encrypted") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a file in clear: %v", err)
	}
}

// TestWhatAFileHasToBe: an error says where and what, and quotes no value.
func TestWhatAFileHasToBe(t *testing.T) {
	for text, want := range map[string]string{
		`- {name: ann, origin: "https://shop.example", password: hunter2, pasword: hunter2}`: "want a list in YAML",
		`- [hunter2`: "want a list in YAML",
		`- {origin: "https://shop.example", password: hunter2}`:                                                                              "want a name",
		`- {name: ann, origin: "https://shop.example/login", password: hunter2}`:                                                             "without a path",
		`- {name: ann, origin: "https://shop.example"}`:                                                                                      "want a password",
		`- {name: ann, origin: "https://shop.example", password: hunter2, totp: "hunter2!"}`:                                                 "no seed in base32",
		"- {name: a, origin: \"https://shop.example\", password: hunter2}\n- {name: a, origin: \"https://shop.example\", password: hunter2}": "twice",
	} {
		if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s\n%v, want %q", text, err, want)
		}
	}
}

// TestASecretIsForItsOrigin: for another one the error names the origins, and no value. A secret
// prints as stars in every way.
func TestASecretIsForItsOrigin(t *testing.T) {
	s, err := parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	one, err := s.Find("ann", "https://shop.example")
	if err != nil || one.Password != "hunter2-word" {
		t.Fatalf("%v, %v", one, err)
	}
	if code, err := one.Code(time.Unix(59, 0)); err != nil || code != "287082" { // RFC 6238, appendix B
		t.Errorf("the code is %s (%v)", string(code), err)
	}
	encoded, err := json.Marshal(one)
	printed := fmt.Sprintf("%v %+v %#v %s %q %x %s", one, one, one, one, one.Password, one.Password, encoded)
	for _, value := range []string{"hunter2", "GEZDGNBV", "68756e746572", "ann@shop"} {
		if err != nil || strings.Contains(printed, value) {
			t.Errorf("%s (%v)", printed, err)
		}
	}
	_, wrong := s.Find("ann", "https://shop.example.evil")
	_, none := s.Find("bob", "https://shop.example")
	if wrong == nil || !strings.Contains(wrong.Error(), "https://shop.example, https://mail.example, not for https://shop.example.evil") || strings.Contains(wrong.Error(), "hunter2") {
		t.Errorf("for another origin: %v", wrong)
	}
	if none == nil || !strings.Contains(none.Error(), "no secret of bob for https://shop.example") {
		t.Errorf("of another account: %v", none)
	}
	if _, err := (*Set)(nil).Find("ann", "https://shop.example"); err == nil {
		t.Error("an empty set has a secret")
	}
}
