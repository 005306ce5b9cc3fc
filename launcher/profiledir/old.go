package profiledir

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

// Old is a guard file without a signature, as earlier versions wrote them, or one whose
// signature was not made with this Root's key.
type Old struct {
	Profile string
	// Home is the launcher that the profile's floor names; empty if it names none.
	Home string
	// Foreign says that the file has a signature made with another key.
	Foreign bool
	// Session is the session that the browser's note names; empty in a floor.
	Session string

	kind    signed.Kind
	path    string
	content []byte
}

// Old lists the readable guard files that have no signature of this Root's key. Nothing in them
// has been verified.
func (r *Root) Old() ([]Old, error) {
	entries, err := os.ReadDir(r.guard)
	if err != nil {
		return nil, fmt.Errorf("guard directory: %w", err)
	}
	homes := map[string]string{}
	var all []Old
	for _, e := range entries {
		for suffix, kind := range map[string]signed.Kind{".floor": signed.Floor, ".browser": signed.Browser} {
			id, ok := strings.CutSuffix(e.Name(), suffix)
			if !ok || lease.CheckProfileID(id) != nil {
				continue
			}
			path := filepath.Join(r.guard, e.Name())
			b, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("guard file: %w", err)
			}
			o := Old{Profile: id, kind: kind, path: path}
			o.content, o.Foreign = signed.Claimed(b)
			switch kind {
			case signed.Floor:
				_, kept, err := parseFloor(o.content)
				if homes[id] = kept.Home; err != nil {
					continue
				}
			default:
				var run Running
				if json.Unmarshal(o.content, &run) != nil {
					continue
				}
				o.Session = run.SessionID
			}
			if _, err := r.key.Open(kind, id, b); err != nil {
				all = append(all, o)
			}
		}
	}
	for i := range all {
		all[i].Home = homes[all[i].Profile]
	}
	return all, nil
}

// Sign signs a guard file as it is. It is meant for the first start of a version that signs.
func (r *Root) Sign(o Old) error {
	if err := durable.Replace(o.path, r.key.Sign(o.kind, o.Profile, o.content)); err != nil {
		return fmt.Errorf("%s: %w", o.path, err)
	}
	return nil
}
