package snapshots

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"leasehold/internal/durable"
	"leasehold/internal/id"
	"leasehold/internal/objects"
	"leasehold/lease"
)

// About is what is known about a snapshot that is being made.
type About struct {
	// Token is the token of the session that ended.
	Token         lease.Token
	SessionID     string
	LauncherID    string
	ChromeVersion string
	CreatedAt     time.Time
	// Extras are kept with the profile: small files that are not in its directory, by name.
	Extras map[string][]byte
}

// parallel is how many objects are read or written at a time.
const parallel = 8

// Seal makes a snapshot of the content. When it returns nil, the snapshot exists: its new
// chunks were stored, synced and read back, the chunks that it shares with the snapshot before
// are there, and the profile's list names it. If a holder with a higher token was first, the
// error is a StaleTokenError, and nothing was changed. If the list has no room, it is ErrFull.
// After an error Seal may be called again for the same Content.
func (s *Store) Seal(ctx context.Context, r *Content, about About) (Snapshot, error) {
	var err error
	for range maxTries {
		var made *Snapshot
		if made, err = s.seal(ctx, r, about); err == nil {
			return *made, nil
		}
		if !errors.Is(err, objects.ErrOtherVersion) {
			break
		}
	}
	return Snapshot{}, err
}

type sealing struct {
	s     *Store
	c     *codec
	token lease.Token
	// known are chunks that some snapshot of the list has, by name; sent are those that this
	// attempt stored.
	known, sent map[string]Chunk
	stored      uint64
	work        *errgroup.Group
	ctx         context.Context // of work
}

func (s *Store) seal(ctx context.Context, r *Content, about About) (*Snapshot, error) {
	fail := func(err error) (*Snapshot, error) {
		return nil, fmt.Errorf("profile %s: snapshot: %w", r.profileID, err)
	}
	c := s.key.of(r.profileID)
	h, err := s.headToChange(ctx, c, r.profileID)
	if err != nil {
		return nil, err
	}
	if err := h.may(about.Token); err != nil {
		return nil, err
	}
	if len(h.Snapshots) >= s.Most {
		return fail(fmt.Errorf("%w: it has %d", ErrFull, len(h.Snapshots)))
	}
	w := &sealing{s: s, c: c, token: about.Token, sent: map[string]Chunk{}}
	if w.known, err = s.knownChunks(ctx, c, h, r.index); err == nil {
		err = w.forgetMissing(ctx, h.Doubted)
	}
	if err != nil {
		return fail(err)
	}
	w.work, w.ctx = errgroup.WithContext(ctx)
	w.work.SetLimit(parallel)
	m := Manifest{Format: Format, Dirs: slices.Concat([]string{}, r.dirs), Tree: []File{}, Snapshot: Snapshot{
		ID: id.New(idPrefix), ProfileID: r.profileID, Token: about.Token, SessionID: about.SessionID, LauncherID: about.LauncherID,
		ChromeVersion: about.ChromeVersion, CreatedAt: about.CreatedAt.UTC(),
	}}
	if last := h.newest(); last != nil {
		m.Previous = last.ID
	}
	err = w.files(r, &m)
	for _, name := range slices.Sorted(maps.Keys(about.Extras)) {
		if err == nil {
			f := File{Path: name, Size: uint64(len(about.Extras[name]))}
			f.Chunks, err = w.store(bytes.NewReader(about.Extras[name]))
			m.Extras = append(m.Extras, f)
		}
	}
	e := entry{}
	if err == nil {
		err = m.check()
	}
	if err == nil {
		e.Manifest, err = w.manifest(m)
	}
	if err = errors.Join(err, w.work.Wait()); err != nil {
		return fail(err)
	}
	m.Stored = w.stored
	e.Snapshot = m.Snapshot
	if err := w.verify(ctx); err != nil {
		return fail(err)
	}
	h.Token, h.Doubted = about.Token, false
	h.Snapshots = append(h.Snapshots, e)
	if err := s.putHead(ctx, c, h); err != nil {
		// It may have been written although no answer came.
		if again, readErr := s.head(context.WithoutCancel(ctx), c, r.profileID); readErr != nil || again.newest() == nil || again.newest().ID != m.ID {
			return fail(err)
		}
	}
	if r.indexPath != "" {
		if err := s.writeIndex(r.profileID, r.indexPath, r.indexOf(m)); err != nil {
			// Without the index the next snapshot reads all files.
			_ = os.Remove(r.indexPath)
		}
	}
	return &e.Snapshot, nil
}

// chunksOf are all chunks of a profile's files.
func chunksOf(m Manifest) []Chunk {
	var all []Chunk
	for _, f := range slices.Concat(m.Tree, m.Extras) {
		all = append(all, f.Chunks...)
	}
	return all
}

// knownChunks are chunks that some snapshot of the list has: those of the newest one, and those
// of the one to which the index belongs. A chunk that no snapshot of the list has may be
// collected at any time, whether or not it is there now.
func (s *Store) knownChunks(ctx context.Context, c *codec, h *head, i *index) (map[string]Chunk, error) {
	known := map[string]Chunk{}
	last := h.newest()
	if i != nil {
		if _, err := h.find(i.Snapshot); err == nil {
			for _, f := range i.Files {
				for _, chunk := range f.Chunks {
					known[chunk.Name] = chunk
				}
			}
			if last.ID == i.Snapshot {
				for _, chunk := range last.Manifest {
					known[chunk.Name] = chunk
				}
				return known, nil
			}
		}
	}
	if last == nil {
		return known, nil
	}
	m, err := s.manifest(ctx, c, last, nil)
	if errors.Is(err, ErrDamaged) || errors.Is(err, ErrIncomplete) {
		return known, nil // the new snapshot stores all its content
	}
	if err != nil {
		return nil, err
	}
	for _, chunk := range append(chunksOf(m), last.Manifest...) {
		known[chunk.Name] = chunk
	}
	return known, nil
}

// files adds the files that were read to the manifest, and stores those of their chunks that
// are new.
func (w *sealing) files(r *Content, m *Manifest) error {
	for _, f := range r.files {
		if f.copy != "" {
			in, err := os.Open(f.copy)
			if err != nil {
				return err
			}
			f.Chunks, err = w.store(in)
			if err = errors.Join(err, in.Close()); err != nil {
				return fmt.Errorf("%s: %w", f.Path, err)
			}
		}
		for _, chunk := range f.Chunks {
			if w.known[chunk.Name] != chunk && w.sent[chunk.Name] != chunk {
				return errors.Join(errStaleIndex, os.Remove(r.indexPath))
			}
		}
		m.Tree = append(m.Tree, f.File)
		m.Files++
		m.Bytes += f.Size
	}
	return nil
}

// errStaleIndex says that the store has other snapshots than this host knows of.
var errStaleIndex = fmt.Errorf("%w: the snapshot that unchanged files were taken from is gone; all files have to be read", ErrStale)

// store cuts a stream into chunks, and sends those that no snapshot has yet.
func (w *sealing) store(in io.Reader) ([]Chunk, error) {
	var chunks []Chunk
	err := split(in, w.c.cuts, func(piece []byte) error {
		name := w.c.name(piece)
		chunk, have := w.known[name]
		if !have {
			chunk, have = w.sent[name]
		}
		if !have {
			if err := context.Cause(w.ctx); err != nil {
				return err
			}
			chunk = Chunk{Name: name, Token: w.token, Size: len(piece)}
			w.sent[name] = chunk
			stored := w.c.pack(name, piece)
			w.stored += uint64(len(stored))
			w.work.Go(func() error { return w.put(chunk, stored) })
		}
		chunks = append(chunks, chunk)
		return nil
	})
	return chunks, err
}

func (w *sealing) manifest(m Manifest) ([]Chunk, error) {
	raw, err := m.encode()
	if err != nil {
		return nil, err
	}
	return w.store(bytes.NewReader(raw))
}

// put writes a chunk. If an earlier attempt has left the chunk there, that one is used, unless
// it is damaged.
func (w *sealing) put(chunk Chunk, stored []byte) error {
	key := w.c.chunkKey(chunk)
	err := w.s.objects.Put(w.ctx, key, stored, "")
	if !errors.Is(err, objects.ErrOtherVersion) {
		return err
	}
	if _, err = w.s.chunk(w.ctx, w.c, chunk); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrIncomplete) {
		return err
	}
	if err := w.s.objects.Delete(w.ctx, key); err != nil {
		return err
	}
	return w.s.objects.Put(w.ctx, key, stored, "")
}

// forgetMissing removes from the known chunks those that are no longer in the store, so that
// they are stored again; with all, it removes all of them.
func (w *sealing) forgetMissing(ctx context.Context, all bool) error {
	if all {
		clear(w.known)
		return nil
	}
	keys, err := w.s.objects.List(ctx, w.c.chunksKey())
	if err != nil {
		return err
	}
	there := make(map[string]bool, len(keys))
	for _, key := range keys {
		there[key] = true
	}
	maps.DeleteFunc(w.known, func(_ string, chunk Chunk) bool { return !there[w.c.chunkKey(chunk)] })
	return nil
}

// verify reads back what was sent.
func (w *sealing) verify(ctx context.Context) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(parallel)
	for _, chunk := range w.sent {
		work.Go(func() error {
			_, err := w.s.chunk(ctx, w.c, chunk)
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return fmt.Errorf("reading back what was stored: %w", err)
	}
	return nil
}

// indexOf is the index for use after the snapshot.
func (r *Content) indexOf(m Manifest) index {
	i := index{Snapshot: m.ID, Files: make(map[string]indexed, len(m.Tree))}
	for n, f := range m.Tree {
		i.Files[f.Path] = indexed{r.files[n].stat, f.Chunks}
	}
	return i
}

// SweepSpool removes what an earlier process has left in a spool.
func SweepSpool(spool string) error {
	left, err := durable.Glob(spool, "reading-*")
	for _, path := range left {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}
