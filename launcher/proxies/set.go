package proxies

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"leasehold/internal/privatefile"
)

// Set has the proxies of a configuration. The nil Set has none.
//
// The file may change while they are in use (Follow). A proxy id always has to mean the same
// way out for a profile, so only the secrets may change: the password, and the authorities.
// Another server or user name, which a site may see as another address, takes effect only at
// the next start.
type Set struct {
	path string

	mu     sync.Mutex
	known  map[string]*Proxy // all that the file has, or has had since the start
	listed map[string]bool   // ids that are in the file now
	read   versions          // of the files that this was read from
	behind bool              // the files now say something else
}

// versions are those of the files of a configuration, by path. A missing file has the zero
// Version.
type versions map[string]privatefile.Version

func look(paths []string) versions {
	v := versions{}
	for _, path := range paths {
		v[path], _ = privatefile.Stat(path) // a missing file also counts as a version
	}
	return v
}

// Load reads a YAML (or JSON) map of proxy ids to servers. Names of further files in it are
// relative to its folder. A file with passwords must not be readable by every user. Errors name
// the file and the id, and never quote a line.
func Load(path string) (*Set, error) {
	before := look([]string{path})
	byID, paths, err := read(path)
	if err != nil {
		return nil, err
	}
	return &Set{path: path, known: byID, listed: ids(byID), read: before.of(paths)}, nil
}

// of are the versions of these paths. A path whose version was not looked at before it was read
// has none, so that the next look finds it changed, and it is read once more.
func (v versions) of(paths []string) versions {
	some := versions{}
	for _, path := range paths {
		some[path] = v[path]
	}
	return some
}

func ids(of map[string]*Proxy) map[string]bool {
	listed := map[string]bool{}
	for id := range of {
		listed[id] = true
	}
	return listed
}

// Find returns the proxy of an id, or nil.
func (s *Set) Find(id string) *Proxy {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.listed[id] {
		return nil
	}
	return s.known[id]
}

// IDs lists the ids, sorted.
func (s *Set) IDs() []string {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.listed))
}

// UpToDate tells whether the configuration in use is the one in the files. It is false while
// the newest version of the files cannot be used, or contains a change that waits for the next
// start.
func (s *Set) UpToDate() bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.behind
}

// lookEvery is the time between two looks at the files.
const lookEvery = time.Second

// Follow reads the files again when they have changed, until ctx ends. They are read after two
// looks have found the same, so that a file that is still being written is not taken for a
// complete one. A version that cannot be used is logged, and the earlier one stays in use; what could not
// be read is read at the next look. Open connections go on; those that running browsers open later use the new credentials.
func (s *Set) Follow(ctx context.Context, log zerolog.Logger) {
	log = log.With().Str("component", "proxies").Str("path", s.path).Logger()
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	done, unread := s.read, false
	for found := done; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		before := found
		found = look(slices.Collect(maps.Keys(done)))
		if !unread && maps.Equal(found, done) || !maps.Equal(found, before) {
			continue
		}
		byID, paths, err := read(s.path)
		was := unread
		if _, unread = errors.AsType[*fs.PathError](err); unread { // nobody may change the files again
			if !was {
				s.take(nil, err, log)
			}
			continue
		}
		if err != nil { // it is not known which files it would name
			paths = append(paths, slices.Collect(maps.Keys(done))...)
		}
		found = found.of(paths)
		done = found
		s.take(byID, err, log)
	}
}

// take puts what was read into use, or logs why not.
func (s *Set) take(byID map[string]*Proxy, err error, log zerolog.Logger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.behind = true
		log.Error().Err(err).Msg("the new version of the proxies cannot be used: what was read last stays in use")
		return
	}
	var changed, kept []string
	for id, p := range byID {
		old := s.known[id]
		switch {
		case old == nil:
			s.known[id] = p
			changed = append(changed, id+": new")
		case old.Sum() != p.Sum() || old.relayed != p.relayed:
			kept = append(kept, id)
		case old.credentials.Load().sum != p.credentials.Load().sum:
			old.credentials.Store(p.credentials.Load())
			changed = append(changed, id+": credentials")
		}
	}
	for id := range s.listed {
		if byID[id] == nil {
			changed = append(changed, id+": gone")
		}
	}
	was := s.behind
	s.listed, s.behind = ids(byID), len(kept) > 0
	slices.Sort(changed)
	slices.Sort(kept)
	if len(changed) > 0 || was && !s.behind {
		log.Info().Strs("changed", changed).Int("proxies", len(byID)).Msg("proxies read again")
	}
	if s.behind {
		log.Error().Strs("proxies", kept).Msg("the new version of the proxies gives these ids another server or user name: they stay as they were until the sidecar is started again")
	}
}
