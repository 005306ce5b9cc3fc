package sessionfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"leasehold/internal/durable"
	"leasehold/internal/signed"
	"leasehold/lease"
)

// Old is a file without a signature, as earlier versions wrote them, or one whose signature was
// not made with this launcher's key.
type Old struct {
	// Foreign says that the file has a signature made with another key.
	Foreign bool

	kind    signed.Kind
	name    string
	path    string
	key     *signed.Key
	content []byte
}

// Sign signs the file as it is. It is meant for the first start of a version that signs.
func (o Old) Sign() error {
	if err := durable.Replace(o.path, o.key.Sign(o.kind, o.name, o.content)); err != nil {
		return fmt.Errorf("%s: %w", o.path, err)
	}
	return nil
}

// old appends the file at path if it has no signature made with the key.
func old(all []Old, path string, kind signed.Kind, name string, key *signed.Key) ([]Old, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return all, err
	}
	o := Old{kind: kind, name: name, path: path, key: key}
	o.content, o.Foreign = signed.Claimed(b)
	if _, err := key.Open(kind, name, b); err == nil || !json.Valid(o.content) {
		return all, nil
	}
	return append(all, o), nil
}

// Old lists the readable session files and digests that have no signature of this launcher's
// key. Nothing in them has been verified.
func (d Dir) Old() ([]Old, error) {
	names, err := os.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []Old
	for _, n := range names {
		for suffix, kind := range map[string]signed.Kind{".json": signed.Session, ".digests": signed.Digests} {
			if id, ok := strings.CutSuffix(n.Name(), suffix); ok && err == nil {
				all, err = old(all, filepath.Join(d.path, n.Name()), kind, id, d.key)
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("sessions folder: %w", err)
	}
	return all, nil
}

// Ledgers lists the paths of the ledgers.
func (d Dir) Ledgers() ([]string, error) { return durable.Glob(d.path, "*.ledger") }

// Old lists the readable files of the jar that have no signature of this launcher's key.
// Nothing in them has been verified.
func (j Jar) Old() ([]Old, error) {
	names, err := os.ReadDir(j.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []Old
	for _, n := range names {
		kind := signed.Cookies
		key, ok := strings.CutSuffix(strings.TrimSuffix(n.Name(), ".noted"), ".json")
		if rest, lasting := strings.CutSuffix(key, ".lasting"); lasting {
			kind, key = signed.Lasting, rest
		}
		profile := lease.ProfileOfKey(key)
		if ok && lease.CheckProfileID(profile) == nil && err == nil {
			all, err = old(all, filepath.Join(j.dir, n.Name()), kind, profile, j.key)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("session cookies: %w", err)
	}
	return all, nil
}
