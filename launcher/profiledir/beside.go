package profiledir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"leasehold/internal/durable"
	"leasehold/internal/signed"
)

// besideMark ends the name of the file that an archived directory has beside it, with what belongs to it and
// is not in it: the session cookies that its profile had then. The profile has others since.
const besideMark = ".cookies"

// moveToArchive has move bring a directory to a path in the archive, after what belongs to it is durably
// beside that path. If it is not moved, nothing is left there.
func (l *Lock) moveToArchive(archived string, extras map[string][]byte, move func() error) error {
	b, err := json.Marshal(extras)
	if err == nil {
		err = durable.WithReserve(filepath.Dir(archived), func() error {
			return durable.Create(archived+besideMark, l.root.key.Sign(signed.Archived, filepath.Base(archived), append(b, '\n')))
		})
	}
	if err != nil {
		return fmt.Errorf("what belongs to %s: %w", archived, err)
	}
	if err := move(); err != nil {
		return errors.Join(err, os.Remove(archived+besideMark))
	}
	return nil
}

// Beside returns what belongs to a directory in the archive, by name. kept is false if it was archived by a
// version that kept nothing. The error is a *DamagedError for a file that this launcher has not written.
func (r *Root) Beside(archived string) (extras map[string][]byte, kept bool, err error) {
	path := archived + besideMark
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("what belongs to %s: %w", archived, err)
	}
	content, err := r.key.Open(signed.Archived, filepath.Base(archived), b)
	if err == nil {
		err = json.Unmarshal(content, &extras)
	}
	if err != nil {
		of, _ := r.IsArchive(archived)
		return nil, false, &DamagedError{Profile: of, Path: path, Cause: err}
	}
	return extras, true, nil
}
