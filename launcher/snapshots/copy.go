package snapshots

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"leasehold/lease"
)

// Copied is the result of CopyFrom.
type Copied struct {
	ProfileID string `json:"profile_id"`
	// Copied are the ids of the snapshots that were copied, in order.
	Copied []string `json:"copied"`
	// There is how many of the other store's snapshots were in this store before.
	There int `json:"there"`
	// Left is how many of them were not copied because retention has already removed them here,
	// where the profile has gone on since.
	Left int `json:"left"`
	// Damaged are those that cannot be read completely, and were not copied.
	Damaged []CheckedSnapshot `json:"damaged"`
	// Stored is how many bytes were sent.
	Stored uint64 `json:"stored_bytes"`
}

// Whole tells whether nothing was damaged.
func (c Copied) Whole() bool { return len(c.Damaged) == 0 }

// sourceError is an error of the store from which is copied.
type sourceError struct{ error }

func (e *sourceError) Unwrap() error { return e.error }

func ofSource(err error) error {
	if err == nil {
		return nil
	}
	return &sourceError{err}
}

// copying is one call of CopyFrom.
type copying struct {
	from, to   *Store
	read, made *codec
	profileID  string
	done       Copied
}

// shared is what a snapshot that both stores have has in common with the next one.
type shared struct {
	// chunks are all its chunks in this store, by name.
	chunks map[string]Chunk
	// files maps each of its files, given by its chunks in the other store, to its chunks in
	// this store.
	files map[[sha256.Size]byte][]Chunk
}

// CopyFrom copies the snapshots of a profile that are not here yet from another store, with
// their ids, tokens and times, and makes this store's list refuse the holders that the other
// one refuses. The other store is only read, and may be in use. A snapshot enters the list as
// soon as everything in it was stored and read back. A damaged one is left out, and reported.
// Snapshots that are sealed meanwhile are copied, too.
//
// The error is a StaleTokenError if this store knows of a later holder of the profile than the
// other one does, and lacks the other one's latest snapshot: then the other store no longer
// decides how the profile goes on. The error is ErrNoSnapshot if the other store knows nothing
// of the profile. What was copied before an error stays.
//
// Both stores may have the same key. If they do not, files are cut anew with this store's key:
// otherwise the next snapshot would share nothing with these, and somebody with the other key
// would recognize chunks by their sizes.
func (s *Store) CopyFrom(ctx context.Context, from *Store, profileID string) (Copied, error) {
	c := &copying{
		from: from, to: s, read: from.key.of(profileID), made: s.key.of(profileID), profileID: profileID,
		done: Copied{ProfileID: profileID, Copied: []string{}, Damaged: []CheckedSnapshot{}},
	}
	err := ofSource(from.CheckThere(ctx))
	for round := 0; err == nil && round < maxTries; round++ {
		var more bool
		if more, err = c.round(ctx, round == 0); !more {
			break
		}
	}
	theirs, stale := new(sourceError), new(StaleTokenError)
	switch {
	case err == nil, errors.As(err, &stale):
	case errors.As(err, &theirs):
		err = fmt.Errorf("the store to copy from: %w", err)
	default:
		err = fmt.Errorf("the store to copy to: %w", err)
	}
	return c.done, err
}

// round copies what is missing now. It returns false if there was nothing.
func (c *copying) round(ctx context.Context, first bool) (more bool, _ error) {
	theirs, err := c.from.head(ctx, c.read, c.profileID)
	if err != nil {
		return false, ofSource(err)
	}
	if theirs.version == "" {
		return false, ofSource(fmt.Errorf("profile %s: %w", c.profileID, ErrNoSnapshot))
	}
	ours, err := c.to.head(ctx, c.made, c.profileID)
	if err != nil {
		return false, err
	}
	var missing []int
	for i, e := range theirs.Snapshots {
		if !ours.has(e.ID) {
			missing = append(missing, i)
		}
	}
	if first {
		c.done.There = len(theirs.Snapshots) - len(missing)
	}
	if ours.Token > theirs.Token {
		if last := theirs.newest(); last == nil || ours.has(last.ID) {
			c.done.Left = len(missing)
			return false, nil
		}
		return false, c.stale(theirs, ours)
	}
	for _, i := range missing {
		if c.isDamaged(theirs.Snapshots[i].ID) {
			continue
		}
		if err := c.copy(ctx, theirs, i); err != nil {
			return false, err
		}
		more = true
	}
	if more {
		return true, nil
	}
	return false, c.to.Raise(ctx, c.profileID, theirs.Token)
}

func (c *copying) stale(theirs, ours *head) error {
	return fmt.Errorf("the store to copy to is ahead, and a sidecar uses it: %w", &StaleTokenError{ProfileID: c.profileID, Token: theirs.Token, Current: ours.Token})
}

func (c *copying) isDamaged(id string) bool {
	return slices.ContainsFunc(c.done.Damaged, func(s CheckedSnapshot) bool { return s.ID == id })
}

// copy copies one snapshot of the other store's list, if it is still there and is whole.
func (c *copying) copy(ctx context.Context, theirs *head, i int) error {
	e := theirs.Snapshots[i]
	err := c.tryAgain(ctx, theirs, i)
	if theirError := new(sourceError); !errors.As(err, &theirError) || !damage(err) { // the error is this store's, or there is none
		if err != nil {
			err = fmt.Errorf("profile %s: copying snapshot %s: %w", c.profileID, e.ID, err)
		}
		return err
	}
	// Retention may have removed it while it was read.
	now, headErr := c.from.head(ctx, c.read, c.profileID)
	if headErr != nil {
		return ofSource(headErr)
	}
	if now.has(e.ID) {
		c.done.Damaged = append(c.done.Damaged, CheckedSnapshot{ID: e.ID, Problems: []string{err.Error()}})
	}
	return nil
}

// tryAgain copies a snapshot, and tries again if somebody else has replaced this store's list
// meanwhile.
func (c *copying) tryAgain(ctx context.Context, theirs *head, i int) (err error) {
	for range maxTries {
		if err = c.try(ctx, theirs, i); !errors.Is(err, ErrOtherVersion) {
			return err
		}
	}
	return err
}

func (c *copying) try(ctx context.Context, theirs *head, i int) error {
	e := theirs.Snapshots[i]
	h, err := c.to.head(ctx, c.made, c.profileID)
	switch {
	case err != nil:
		return err
	case h.has(e.ID): // another copy was first
		return nil
	case h.Token > theirs.Token:
		return c.stale(theirs, h)
	case len(h.Snapshots) >= maxSnapshots:
		return fmt.Errorf("there are %d already, want fewer: have the sidecars remove some (--profile-snapshots)", maxSnapshots)
	}
	base, err := c.base(ctx, h, theirs, i)
	if err != nil {
		return err
	}
	made, err := c.transfer(ctx, e, theirs.Token, base)
	if err != nil {
		return err
	}
	h.insert(made, theirs, i)
	h.Token = theirs.Token
	if err := c.to.putHead(ctx, c.made, h); err != nil {
		// It may have been written although no answer came.
		if again, readErr := c.to.head(context.WithoutCancel(ctx), c.made, c.profileID); readErr != nil || !again.has(e.ID) {
			return err
		}
	}
	c.done.Copied = append(c.done.Copied, e.ID)
	c.done.Stored += made.Stored
	return nil
}

// base is the snapshot on which the next one is built: the nearest one in the other store's
// list that both stores have. It is empty if there is none.
func (c *copying) base(ctx context.Context, h, theirs *head, i int) (shared, error) {
	if h.Doubted {
		return shared{}, nil
	}
	distance := func(j int) int { return max(i-j, j-i) }
	near := make([]int, 0, len(theirs.Snapshots))
	for j, e := range theirs.Snapshots {
		if h.has(e.ID) {
			near = append(near, j)
		}
	}
	slices.SortFunc(near, func(a, b int) int { return cmp.Compare(distance(a), distance(b)) })
	for _, j := range near {
		their := theirs.Snapshots[j]
		our, err := h.find(their.ID)
		if err != nil {
			return shared{}, err
		}
		m, err := c.from.manifest(ctx, c.read, &their, nil)
		if err != nil && !damage(err) {
			return shared{}, ofSource(err)
		}
		var n Manifest
		if err == nil {
			n, err = c.to.manifest(ctx, c.made, our, nil)
		}
		if damage(err) {
			continue
		}
		if err != nil {
			return shared{}, err
		}
		w := sealing{s: c.to, c: c.made, known: map[string]Chunk{}}
		for _, chunk := range append(chunksOf(n), our.Manifest...) {
			w.known[chunk.Name] = chunk
		}
		if err := w.forgetMissing(ctx, false); err != nil {
			return shared{}, err
		}
		return shared{w.known, filesOf(m, n, w.known)}, nil
	}
	return shared{}, nil
}

// filesOf are the files of a snapshot that has the manifest theirs in the other store and ours
// in this one: the files whose chunks are all there.
func filesOf(theirs, ours Manifest, chunks map[string]Chunk) map[[sha256.Size]byte][]Chunk {
	files, here := map[[sha256.Size]byte][]Chunk{}, map[string][]Chunk{}
	for _, f := range slices.Concat(ours.Tree, ours.Extras) {
		here[f.Path] = f.Chunks
	}
	for _, f := range slices.Concat(theirs.Tree, theirs.Extras) {
		all := here[f.Path]
		if len(all) > 0 && !slices.ContainsFunc(all, func(chunk Chunk) bool { return chunks[chunk.Name] != chunk }) {
			files[digest(f.Chunks)] = all
		}
	}
	return files
}

// digest identifies a file of the other store.
func digest(chunks []Chunk) (sum [sha256.Size]byte) {
	hash := sha256.New()
	for _, chunk := range chunks {
		_, _ = fmt.Fprintln(hash, chunk.Name, chunk.Token, chunk.Size) // never fails
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

// transfer stores a snapshot of the other store, and reads back what it sent. token is the
// highest token that the other store knows.
//
// New chunks go into the folder of the token after that. A holder with a token up to that one,
// who may already be using this store, collects nothing there, though no list names these
// chunks yet; and as soon as there is a later holder, this list can no longer be written.
func (c *copying) transfer(ctx context.Context, e entry, token lease.Token, base shared) (entry, error) {
	m, err := c.from.manifest(ctx, c.read, &e, nil)
	if err != nil {
		return entry{}, ofSource(err)
	}
	w := &sealing{s: c.to, c: c.made, token: token + 1, known: base.chunks, sent: map[string]Chunk{}}
	w.work, w.ctx = errgroup.WithContext(ctx)
	w.work.SetLimit(parallel)
	files := map[[sha256.Size]byte][]Chunk{} // their chunks here; files that have to be read have none yet
	var todo []Chunk                         // the chunks of files that have to be read
	all := slices.Concat(m.Tree, m.Extras)
	for _, f := range all {
		sum := digest(f.Chunks)
		if _, twice := files[sum]; twice {
			continue
		}
		if files[sum] = base.files[sum]; files[sum] == nil {
			todo = append(todo, f.Chunks...)
		}
	}
	content, stop := c.from.readAhead(w.ctx, c.read, todo)
	for n := range all {
		sum := digest(all[n].Chunks)
		if files[sum] == nil && err == nil {
			if files[sum], err = w.store(io.LimitReader(content, int64(all[n].Size))); err != nil {
				err = fmt.Errorf("%s: %w", all[n].Path, err)
			}
		}
		all[n].Chunks = files[sum]
	}
	stop()
	m.Tree, m.Extras = all[:len(m.Tree):len(m.Tree)], all[len(m.Tree):]
	m.Stored, m.Pins = 0, nil // the list has these
	if err == nil {
		err = m.check()
	}
	made := entry{Snapshot: e.Snapshot}
	if err == nil {
		made.Manifest, err = w.manifest(m)
	}
	if sent := w.work.Wait(); sent != nil { // it is the cause of the other errors
		err = sent
	}
	if err == nil {
		err = w.verify(ctx)
	}
	made.Stored = w.stored
	return made, err
}

// has tells whether a snapshot is in the list.
func (h *head) has(snapshotID string) bool {
	_, err := h.find(snapshotID)
	return err == nil
}

// insert puts the i-th snapshot of another list into this one: after everything that precedes
// it there, and after everything that is earlier by token and time.
func (h *head) insert(e entry, theirs *head, i int) {
	at := 0
	for n, there := range h.Snapshots {
		their := slices.IndexFunc(theirs.Snapshots, func(t entry) bool { return t.ID == there.ID })
		earlier := cmp.Or(cmp.Compare(there.Token, e.Token), there.CreatedAt.Compare(e.CreatedAt)) <= 0
		if their >= 0 && their < i || their < 0 && earlier && at == n {
			at = n + 1
		}
	}
	h.Snapshots = slices.Insert(h.Snapshots, at, e)
}

// Others returns how many profiles the store has besides those with these ids. The store does
// not know their names, which are encrypted with each profile's own key.
func (s *Store) Others(ctx context.Context, profileIDs []string) (int, error) {
	known := map[string]bool{}
	for _, profileID := range profileIDs {
		known[s.key.of(profileID).profile] = true
	}
	folders, err := s.objects.Folders(ctx, profilesKey)
	if err != nil {
		return 0, err
	}
	others := 0
	for _, folder := range folders {
		if known[folder] {
			continue
		}
		_, _, err := s.objects.Get(ctx, profilesKey+folder+"/"+headName)
		switch {
		case errors.Is(err, ErrNoObject): // an attempt that was not completed
		case err != nil:
			return 0, err
		default:
			others++
		}
	}
	return others, nil
}

// readAhead returns the content of chunks, one after the other, and fetches the next ones
// meanwhile. Its errors are of type sourceError. The caller has to call stop, which waits for
// the fetches.
func (s *Store) readAhead(ctx context.Context, c *codec, chunks []Chunk) (_ io.Reader, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	a := &ahead{ctx: ctx, next: make(chan chan fetchedChunk, parallel)}
	var work sync.WaitGroup
	work.Go(func() {
		defer close(a.next)
		for _, chunk := range chunks {
			one := make(chan fetchedChunk, 1)
			select {
			case a.next <- one:
			case <-ctx.Done():
				return
			}
			work.Go(func() {
				content, err := s.chunk(ctx, c, chunk)
				one <- fetchedChunk{content, err}
			})
		}
	})
	return a, func() { cancel(); work.Wait() }
}

// ahead is the reader of readAhead.
type ahead struct {
	ctx  context.Context
	next chan chan fetchedChunk
	rest []byte
}

type fetchedChunk struct {
	content []byte
	err     error
}

// Read implements io.Reader.
func (a *ahead) Read(p []byte) (int, error) {
	for len(a.rest) == 0 {
		one, more := <-a.next
		if !more {
			return 0, cmp.Or(context.Cause(a.ctx), io.EOF)
		}
		got := <-one
		if got.err != nil {
			return 0, ofSource(got.err)
		}
		a.rest = got.content
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}
