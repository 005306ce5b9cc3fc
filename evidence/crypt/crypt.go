// Package crypt encrypts evidence at rest, in the format of age (filippo.io/age). A writer of
// evidence has recipients, which are public keys, with which nothing can be decrypted. A reader
// has identities, which are the private keys. Any tool that knows age can decrypt a stored
// part.
package crypt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"leasehold/internal/durable"
)

// Format is the name of the format in manifests.
const Format = "age"

// Errors that readers distinguish.
var (
	// ErrNoKey says that no identity opens the encrypted content, or that there is no identity.
	ErrNoKey = errors.New("no identity opens this evidence")
	// ErrMalformed says that something is not in the format, or was changed since it was
	// encrypted.
	ErrMalformed = errors.New("not what was encrypted")
)

// Recipients are those who may read the encrypted content. A nil *Recipients encrypts nothing.
type Recipients struct {
	keys  []age.Recipient
	names []string
}

// ParseRecipients reads public keys such as age1... or age1pq1..., in any number, and
// returns nil for none. The two kinds cannot be mixed: one old key would undo the
// protection of the new ones.
func ParseRecipients(texts []string) (*Recipients, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	r := &Recipients{}
	for _, text := range texts {
		text = strings.TrimSpace(text)
		if strings.ContainsAny(text, "\r\n") {
			return nil, errors.New("a recipient is one line: want a public key, which begins with age1")
		}
		if strings.HasPrefix(strings.ToUpper(text), "AGE-SECRET-KEY-") {
			return nil, errors.New("this is an identity, a private key: want the recipient that belongs to it, which begins with age1")
		}
		keys, err := age.ParseRecipients(strings.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("recipient %.80q: want one such as age1...: %w", text, err)
		}
		if slices.Contains(r.names, text) {
			continue
		}
		r.keys, r.names = append(r.keys, keys...), append(r.names, text)
	}
	if _, err := r.Encrypt(nil); err != nil {
		return nil, fmt.Errorf("recipients %s: %w", strings.Join(r.names, ", "), err)
	}
	return r, nil
}

// Names are the recipients as text; none for nil.
func (r *Recipients) Names() []string {
	if r == nil {
		return nil
	}
	return slices.Clone(r.names)
}

// Encrypt returns an age file that each recipient can read.
func (r *Recipients) Encrypt(plain []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := age.Encrypt(&b, r.keys...)
	if err != nil {
		return nil, fmt.Errorf("encrypt: %w", err)
	}
	if _, err := w.Write(plain); err != nil {
		return nil, fmt.Errorf("encrypt: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("encrypt: %w", err)
	}
	return b.Bytes(), nil
}

// Identities are private keys. A nil *Identities opens nothing.
type Identities struct {
	keys  []age.Identity
	names []string // the recipients that belong to them
}

// maxIdentityFile bounds a file with identities, in bytes.
const maxIdentityFile = 1 << 20

// ReadIdentities reads files of private keys, as leasehold evidence keygen and age-keygen
// write them, and returns nil for no file. A file that other users may read is refused.
func ReadIdentities(paths []string) (*Identities, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	all := &Identities{}
	for _, path := range paths {
		content, err := readPrivate(path)
		if err != nil {
			return nil, err
		}
		one, err := ParseIdentities(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all.keys, all.names = append(all.keys, one.keys...), append(all.names, one.names...)
	}
	return all, nil
}

// readPrivate reads a file that only its owner may read.
func readPrivate(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("%s: its mode is %04o, so that other users may read the private key: chmod 600 it", path, mode)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxIdentityFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(content) > maxIdentityFile:
		return nil, fmt.Errorf("%s: it has more than %d bytes: want a file with private keys", path, maxIdentityFile)
	}
	return content, nil
}

// ParseIdentities reads private keys, one on each line; it skips empty lines and those that
// begin with #. Its errors do not repeat what was read.
func ParseIdentities(content []byte) (*Identities, error) {
	if bytes.HasPrefix(content, []byte("age-encryption.org/")) || bytes.HasPrefix(content, []byte("-----BEGIN AGE")) {
		return nil, errors.New("the private key is itself encrypted: decrypt it first (age -d)")
	}
	keys, err := age.ParseIdentities(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("want lines that begin with AGE-SECRET-KEY: %w", err)
	}
	ids := &Identities{keys: keys}
	for _, key := range keys {
		switch k := key.(type) {
		case *age.X25519Identity:
			ids.names = append(ids.names, k.Recipient().String())
		case *age.HybridIdentity:
			ids.names = append(ids.names, k.Recipient().String())
		}
	}
	return ids, nil
}

// Names are the recipients that belong to the identities; none for nil.
func (i *Identities) Names() []string {
	if i == nil {
		return nil
	}
	return slices.Clone(i.names)
}

// Decrypt returns the decrypted content, or ErrNoKey, or ErrMalformed.
func (i *Identities) Decrypt(encrypted []byte) ([]byte, error) {
	if i == nil || len(i.keys) == 0 {
		return nil, ErrNoKey
	}
	r, err := age.Decrypt(bytes.NewReader(encrypted), i.keys...)
	if _, ok := errors.AsType[*age.NoIdentityMatchError](err); ok {
		return nil, ErrNoKey
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return plain, nil
}

// WriteIdentity makes a private key, writes it to a new file that only its owner may read, and
// returns the recipient that belongs to it. It does not change an existing file.
func WriteIdentity(path string) (recipient string, err error) {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		return "", fmt.Errorf("private key: %w", err)
	}
	recipient = key.Recipient().String()
	err = durable.Create(path, fmt.Appendf(nil, "# created: %s\n# public key: %s\n%s\n", time.Now().UTC().Format(time.RFC3339), recipient, key))
	if errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("%s is there already, and stays: evidence may be readable by it alone", path)
	}
	if err != nil {
		return "", err
	}
	return recipient, nil
}
