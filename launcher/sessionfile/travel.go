package sessionfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"leasehold/internal/durable"
	"leasehold/internal/signed"
)

// The names under which the cookies of a jar travel with a snapshot of the profile.
const (
	travelSession = "session-cookies"
	travelLasting = "lasting-cookies"
)

// Export returns what the jar keeps of a profile, by name, for a snapshot or another copy of the profile.
// The signatures are left out, since another launcher could not check them.
func (j Jar) Export(profile string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for name, of := range j.travelling(profile) {
		cookies, err := j.read(of.path, of.kind, profile)
		if err != nil {
			return nil, err
		}
		if len(cookies) == 0 {
			continue
		}
		b, err := json.Marshal(cookies)
		if err != nil {
			return nil, fmt.Errorf("session cookies of %s: %w", profile, err)
		}
		files[name] = b
	}
	return files, nil
}

// Import makes the jar keep what Export returned, and nothing else. What was kept of the
// profile before is replaced. Names that it does not know are ignored: a later version
// may have exported more.
func (j Jar) Import(profile string, files map[string][]byte) error {
	for name, of := range j.travelling(profile) {
		var cookies []cookie
		if content, ok := files[name]; ok {
			if err := json.Unmarshal(content, &cookies); err != nil {
				return fmt.Errorf("session cookies of %s: %s of the snapshot: %w", profile, name, err)
			}
		}
		if err := j.save(of.path, of.kind, profile, cookies); err != nil {
			return err
		}
	}
	if err := errors.Join(j.DropNoted(profile), os.MkdirAll(j.dir, 0o700)); err != nil {
		return err
	}
	return durable.Sync(j.dir)
}

type jarFile struct {
	path string
	kind signed.Kind
}

func (j Jar) travelling(profile string) map[string]jarFile {
	return map[string]jarFile{travelSession: {j.path(profile), signed.Cookies}, travelLasting: {j.lasting(profile), signed.Lasting}}
}
