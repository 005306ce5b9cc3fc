// Package sites keeps what is known of sites: the files that all launchers share in the store, and
// those of a directory of this host that are told to the store. While the store is away, or forgets,
// a launcher goes by the files that it knew last.
package sites

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/checkpoint/site"
	"leasehold/internal/ownpath"
	"leasehold/lease"
)

// Options are what a Shelf works with.
type Options struct {
	// Store is nil if there is none: then a Shelf only has the files of Dir.
	Store lease.SiteStore
	// Dir has files NAME.yaml, NAME.yml or NAME.json; empty: there is none.
	Dir string
	// Announce publishes that a file was changed or removed; nil: nobody is told.
	Announce func(context.Context, lease.Event) error
	Log      zerolog.Logger
	Metrics  prometheus.Registerer
}

// Entry is a file with what is known of it beside its content.
type Entry struct {
	site.File
	// Revision is that of the write which stored it; zero: the store does not have it yet.
	Revision uint64 `json:"revision"`
}

// stored is how the store has a file. Told is the digest of the file of a directory that it is from, which
// is kept when the file is removed.
type stored struct {
	File site.File `json:"file,omitzero"`
	Told string    `json:"told,omitempty"`
}

// Shelf has the files. Its methods may be called concurrently.
type Shelf struct {
	o    Options
	book atomic.Pointer[site.Book]

	loaded  chan struct{} // closed when the store was seen once, or cannot be used
	once    sync.Once
	wake    chan struct{}
	counted chan struct{} // has an element if something was counted

	changes prometheus.Counter

	mu     sync.Mutex
	known  map[string]version    // by name; what the store forgot stays, without a revision
	gone   map[string]version    // names that were removed, with what is kept: no file, and the revision of that
	whole  bool                  // the store has shown all that it has
	counts map[string]site.Tally // by site, which the store was not told yet
	listed map[string]told       // the files of the directory, by name
	look   string                // how the directory looked when they were read
	unread bool                  // one of them could not be read then
	wrong  map[string]error      // files that do not count, by where they are
}

// version is a file as the store has it; without a revision, as it had it.
type version struct {
	stored
	revision uint64
}

type told struct {
	file   site.File
	digest string
	anew   bool // it has changed since the launcher began, and the store was not told
	done   bool // the store has it, or shall not have it
	begun  bool // that was so once since the launcher began
}

// New returns a shelf with the files of the directory. The error names a file that is wrong.
func New(o Options) (*Shelf, error) {
	s := &Shelf{
		o: o, loaded: make(chan struct{}), wake: make(chan struct{}, 1), counted: make(chan struct{}, 1), counts: map[string]site.Tally{},
		known: map[string]version{}, gone: map[string]version{}, listed: map[string]told{}, wrong: map[string]error{},
	}
	s.o.Log = o.Log.With().Str("component", "sites").Logger()
	if err := s.read(); err != nil {
		return nil, err
	}
	s.bind()
	s.changes = prometheus.NewCounter(prometheus.CounterOpts{Name: "leasehold_site_changes_total", Help: "Changes of files about sites that this launcher stored."})
	o.Metrics.MustRegister(s.changes,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "leasehold_sites", Help: "Sites of which this launcher has a file."}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(len(s.files()))
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "leasehold_site_files_wrong", Help: "Files about sites that cannot be read, and do not count; the log says why."}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(len(s.wrong))
		}),
	)
	return s, nil
}

// Book is what is known now. It does not change: ask again for each request.
func (s *Shelf) Book() *site.Book {
	if s == nil {
		return nil
	}
	return s.book.Load()
}

const (
	lookEvery = 5 * time.Second
	// patience is how long Load waits for the store.
	patience = 5 * time.Second
)

// Load waits until the store's files are known, or the store turns out not to have them.
func (s *Shelf) Load(ctx context.Context) {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-s.loaded:
	case <-ctx.Done():
	}
}

// Run follows the store and the directory until ctx ends.
func (s *Shelf) Run(ctx context.Context) {
	if s == nil {
		return
	}
	var work sync.WaitGroup
	defer work.Wait()
	if s.o.Store == nil {
		s.once.Do(func() { close(s.loaded) })
	} else {
		work.Go(func() { s.watch(ctx) })
		work.Go(func() { s.tellCounts(ctx) })
	}
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	for {
		if again := s.tell(ctx); again {
			ticks.Reset(lookEvery)
		} else if s.o.Dir == "" { // there is nothing to look at
			ticks.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-ticks.C:
			if err := s.read(); err != nil {
				s.o.Log.Error().Err(err).Msg("the directory of sites cannot be read: what was known before stays in force")
			}
			s.bind()
		}
	}
}

// watch follows the store. Where it cannot be used, that is logged once.
func (s *Shelf) watch(ctx context.Context) {
	said := ""
	for ctx.Err() == nil {
		err := s.o.Store.WatchSites(ctx, s.see)
		if err == nil {
			return
		}
		if err.Error() != said {
			said = err.Error()
			s.o.Log.Warn().Err(err).Msg("what other launchers know of sites is not seen: the last known files stay in force")
		}
		s.once.Do(func() { close(s.loaded) })
		select {
		case <-ctx.Done():
		case <-time.After(lookEvery):
		}
	}
}

// see takes in what the store shows.
func (s *Shelf) see(sight lease.SiteSight) {
	s.mu.Lock()
	name := sight.Entry.Name
	switch {
	case sight.Fresh:
		for n, v := range s.known {
			v.revision = 0
			s.known[n] = v
		}
		for n, t := range s.listed {
			t.done = false
			s.listed[n] = t
		}
		s.whole, s.gone = false, map[string]version{}
		s.mu.Unlock()
		return
	case sight.Complete:
		s.whole = true
	case sight.Entry.Revision < s.revisionOf(name): // it was put or removed since
	case sight.Entry.Gone:
		var v version
		_ = json.Unmarshal(sight.Entry.Data, &v.stored) // there may be none
		delete(s.known, name)
		s.gone[name] = version{stored{Told: v.Told}, sight.Entry.Revision}
	default:
		var v version
		if json.Unmarshal(sight.Entry.Data, &v.stored) != nil || v.File.Name != name {
			v.File = site.File{Name: name} // which is wrong, and does not count
		}
		v.revision = sight.Entry.Revision
		s.known[name] = v
		delete(s.gone, name)
	}
	s.mu.Unlock()
	s.bind()
	if sight.Complete {
		s.once.Do(func() { close(s.loaded) })
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// revisionOf is the revision under which a file was last put or removed, as far as is known. The caller
// holds mu.
func (s *Shelf) revisionOf(name string) uint64 {
	return max(s.known[name].revision, s.gone[name].revision)
}

// files are those that count. The caller holds mu.
func (s *Shelf) files() []site.File {
	var all []site.File
	for _, v := range s.known {
		all = append(all, v.File)
	}
	for name, t := range s.listed {
		if _, known := s.known[name]; !known && (s.gone[name].revision == 0 || t.anew) {
			all = append(all, t.file)
		}
	}
	return all
}

// bind makes the book of what is known now, and logs which files are wrong.
func (s *Shelf) bind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, wrong := site.NewBook(s.files())
	if before := s.book.Load(); before == nil || !b.Has(before) {
		b.Begin(before, time.Now())
		s.book.Store(b)
	}
	const inStore = "the store"
	text := fmt.Sprint(s.wrong[inStore])
	if delete(s.wrong, inStore); len(wrong) > 0 {
		s.wrong[inStore] = errors.Join(wrong...)
		if s.wrong[inStore].Error() != text {
			s.o.Log.Error().Err(s.wrong[inStore]).Msg("files about sites are wrong, and do not count")
		}
	}
}

// read reads the directory, if it looks otherwise than before, or a file could not be read then. A file
// that is wrong keeps what it said before; at the start it is an error.
func (s *Shelf) read() error {
	if s.o.Dir == "" {
		return nil
	}
	err := ownpath.Check(s.o.Dir)
	var names []os.DirEntry
	if err == nil {
		names, err = os.ReadDir(s.o.Dir)
	}
	if err != nil {
		return fmt.Errorf("directory of sites: %w", err)
	}
	look := ""
	var paths []string
	for _, n := range names {
		if ext := filepath.Ext(n.Name()); slices.Contains([]string{".yaml", ".yml", ".json"}, ext) && !strings.HasPrefix(n.Name(), ".") {
			info, err := os.Stat(filepath.Join(s.o.Dir, n.Name())) // the file behind a link may change
			if err != nil {
				info, err = n.Info()
			}
			if err == nil {
				paths = append(paths, n.Name())
				look += fmt.Sprintln(n.Name(), info.Size(), info.ModTime().UnixNano())
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if look == s.look && !s.unread {
		return nil
	}
	first := s.look == ""
	s.look, s.unread = look, false
	listed := map[string]told{}
	var failed []error
	for _, name := range paths {
		path := filepath.Join(s.o.Dir, name)
		f, digest, err := parse(path)
		if before, has := s.listed[f.Name]; err == nil && has && before.digest == digest {
			listed[f.Name] = before
		} else if err == nil {
			listed[f.Name] = told{file: f, digest: digest, anew: !first}
		}
		if err != nil {
			_, unread := errors.AsType[*fs.PathError](err) // nobody may change the file again
			s.unread = s.unread || unread
			if was := s.wrong[path]; !unread || was == nil || was.Error() != err.Error() {
				failed = append(failed, err)
			}
			s.wrong[path] = err
			if before := s.listed[strings.TrimSuffix(name, filepath.Ext(name))]; before.digest != "" {
				listed[before.file.Name] = before
			}
			continue
		}
		delete(s.wrong, path)
	}
	s.listed = listed
	return errors.Join(failed...)
}

// parse reads one file of the directory, which is named like its site, and which nobody else may write.
func parse(path string) (f site.File, digest string, err error) {
	b, err := os.ReadFile(path)
	var info os.FileInfo
	if err == nil {
		info, err = os.Stat(path)
	}
	if err != nil {
		return f, "", err
	}
	if s, ok := info.Sys().(*syscall.Stat_t); !ok || info.Mode().Perm()&0o022 != 0 || s.Uid != 0 && s.Uid != uint32(os.Geteuid()) {
		return f, "", fmt.Errorf("%s: another user may write it: want it to be root's or that of the sidecar's user, and chmod go-w", path)
	}
	if f, err = site.Parse(b); err != nil {
		return f, "", fmt.Errorf("%s: %w", path, err)
	}
	if base := filepath.Base(path); strings.TrimSuffix(base, filepath.Ext(base)) != f.Name {
		return f, "", fmt.Errorf("%s: name: %q: want the name of the file", path, f.Name)
	}
	attribute(&f, "the file "+filepath.Base(path), info.ModTime().UTC().Truncate(time.Second))
	sum := sha256.Sum256(b)
	return f, hex.EncodeToString(sum[:8]), nil
}

// attribute notes in each line who said it, and when.
func attribute(f *site.File, by string, at time.Time) {
	f.Requests = slices.Clone(f.Requests)
	for i := range f.Requests {
		f.Requests[i].SaidBy, f.Requests[i].SaidAt = by, at
	}
}

// keep notes of lines that were there before who said them then, and when.
func keep(f *site.File, before site.File) {
	f.Requests = slices.Clone(f.Requests)
	for i, l := range f.Requests {
		for _, o := range before.Requests {
			if o.Text() == l.Text() {
				f.Requests[i].SaidBy, f.Requests[i].SaidAt, f.Requests[i].Incident = o.SaidBy, o.SaidAt, cmp.Or(l.Incident, o.Incident)
			}
		}
	}
}

// tell tells the store what it does not have: files of the directory that are new, and what it forgot.
// again says that it could not be told.
func (s *Shelf) tell(ctx context.Context) (again bool) {
	s.mu.Lock()
	type task struct {
		version
		name string
		by   string // empty: the store had it before
	}
	var tasks []task
	if s.whole && s.o.Store != nil {
		for name, v := range s.known {
			if v.revision == 0 {
				tasks = append(tasks, task{v, name, ""})
			}
		}
		for name, t := range s.listed {
			v, known := s.known[name]
			stays := v.Told == t.digest || known && t.begun && !t.anew // put by somebody since
			switch {
			case t.done || known && v.revision == 0 && stays:
				continue
			case stays, s.gone[name].revision != 0 && !t.anew: // removed since it was told
				t.done, t.begun, t.anew = true, true, false
				s.listed[name] = t
				continue
			}
			f := t.file
			keep(&f, v.File)
			tasks = slices.DeleteFunc(tasks, func(o task) bool { return o.name == name })
			tasks = append(tasks, task{version{stored{f, t.digest}, v.revision}, name, "the file " + name + " of --sites-dir"})
		}
	}
	s.mu.Unlock()
	for _, t := range tasks {
		at, err := s.put(ctx, t.name, t.stored, t.revision)
		if err != nil && !errors.Is(err, lease.ErrSiteMoved) {
			s.o.Log.Warn().Err(err).Str("site", t.name).Msg("the store could not be told what is known of a site: it is told again")
			return true
		}
		if err == nil && t.by != "" {
			s.announce(ctx, lease.Event{Event: lease.EventSiteChanged, Site: t.name, Revision: at, Requests: len(t.File.Requests), Principal: t.by}, time.Now())
		}
	}
	return false
}

// put stores a file, or removes it if next has none, in the place of the one of that revision.
func (s *Shelf) put(ctx context.Context, name string, next stored, revision uint64) (uint64, error) {
	data, err := json.Marshal(next)
	if err != nil {
		return 0, fmt.Errorf("site %s: %w", name, err)
	}
	gone := next.File.Name == ""
	at, err := s.o.Store.PutSite(ctx, lease.SiteEntry{Name: name, Data: data, Revision: revision, Gone: gone})
	if err != nil {
		return 0, fmt.Errorf("site %s: %w", name, err)
	}
	s.changes.Inc()
	s.mu.Lock()
	if s.revisionOf(name) < at { // the watch may have shown a later one already, or that it was removed
		if gone {
			delete(s.known, name)
			s.gone[name] = version{next, at}
		} else {
			s.known[name] = version{next, at}
			delete(s.gone, name)
		}
	}
	s.mu.Unlock()
	s.bind()
	return at, nil
}

// ErrNoStore says that there is no store in which a file could be changed.
var ErrNoStore = errors.New("the store of sites cannot be used")

// ErrUnknown says that there is no such file.
var ErrUnknown = errors.New("no such site")

// Any is the revision of whatever is there.
const Any = ^uint64(0)

// List are all files, by name.
func (s *Shelf) List() []Entry {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]Entry{}
	for _, f := range s.files() {
		all[f.Name] = Entry{f, s.known[f.Name].revision}
	}
	var list []Entry
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[name])
	}
	return list
}

// Get returns one file, or ErrUnknown.
func (s *Shelf) Get(name string) (Entry, error) {
	for _, e := range s.List() {
		if e.Name == name {
			return e, nil
		}
	}
	return Entry{}, ErrUnknown
}

// Put stores a checked file in the place of the one of that revision, in the name of by. The error
// is lease.ErrSiteMoved if there is another.
func (s *Shelf) Put(ctx context.Context, f site.File, revision uint64, by string, now time.Time) (Entry, error) {
	before, err := s.at(f.Name, revision)
	if err != nil {
		return Entry{}, err
	}
	attribute(&f, by, now.UTC().Truncate(time.Second))
	keep(&f, before.File)
	at, err := s.put(ctx, f.Name, stored{f, before.Told}, before.revision)
	if err == nil {
		s.announce(ctx, lease.Event{Event: lease.EventSiteChanged, Site: f.Name, Revision: at, Requests: len(f.Requests), Principal: by}, now)
	}
	return Entry{f, at}, err
}

// announceTimeout bounds how long a change waits for its event to be published.
const announceTimeout = 3 * time.Second

// announce publishes that a file was changed or removed. The change is made already, and the store
// publishes later what it could not at once.
func (s *Shelf) announce(ctx context.Context, e lease.Event, now time.Time) {
	if s.o.Announce == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceTimeout)
	defer cancel()
	e.At = now.UTC()
	if err := s.o.Announce(ctx, e); err != nil {
		s.o.Log.Warn().Err(err).Str("site", e.Site).Msg("what is known of a site was changed, and this event is not known to be published")
	}
}

// Teach says what requests of one shape do, in the file about their site: see site.Teach. It is done
// anew if somebody else has changed the file meanwhile.
func (s *Shelf) Teach(ctx context.Context, l site.Line, by string, now time.Time) (Entry, error) {
	for tries := 0; ; tries++ {
		var files []site.File
		revisions := map[string]uint64{}
		for _, e := range s.List() {
			files, revisions[e.Name] = append(files, e.File), e.Revision
		}
		f, err := site.Teach(files, l)
		if err != nil {
			return Entry{}, err
		}
		e, err := s.Put(ctx, f, revisions[f.Name], by, now)
		if !errors.Is(err, lease.ErrSiteMoved) || tries == teachTries {
			return e, err
		}
		select {
		case <-ctx.Done():
			return Entry{}, err
		case <-time.After(teachPause): // the watch shows what somebody else has put
		}
	}
}

const (
	teachTries = 20
	teachPause = 100 * time.Millisecond
)

// Delete removes the file of that revision, in the name of by.
func (s *Shelf) Delete(ctx context.Context, name string, revision uint64, by string, now time.Time) error {
	before, err := s.at(name, revision)
	if err == nil && before.revision == 0 {
		err = ErrUnknown
	}
	if err == nil {
		revision, err = s.put(ctx, name, stored{Told: before.Told}, before.revision)
	}
	if err == nil {
		s.announce(ctx, lease.Event{Event: lease.EventSiteRemoved, Site: name, Revision: revision, Principal: by}, now)
	}
	return err
}

// at is the file that a change is based on. Of one that was removed it is what is kept, without a revision.
func (s *Shelf) at(name string, revision uint64) (version, error) {
	if s == nil || s.o.Store == nil {
		return version{}, ErrNoStore
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, known := s.known[name]
	if !known {
		v.stored = s.gone[name].stored
	}
	if revision != Any && revision != v.revision {
		return v, lease.ErrSiteMoved
	}
	return v, nil
}
