// Package roster is what a launcher remembers of every profile that it has ever seen in the
// lease store: its home, the highest token, and the state. It is on the launcher's own disk,
// synced and signed, so that the launcher can contradict a store that forgets: a profile that
// some launcher remembers is not made anew elsewhere.
package roster

import (
	"bytes"
	"context"
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
	"time"

	"github.com/rs/zerolog"

	"leasehold/internal/durable"
	"leasehold/internal/signed"
	"leasehold/lease"
)

// fileName is the name of the file in the data directory.
const fileName = "roster"

const (
	// batchTime is how long a change waits for others, so that one sync serves them all.
	batchTime = 100 * time.Millisecond
	// retryAfter is the pause after a write that failed.
	retryAfter = 5 * time.Second
	// slack is how many lines the file may have beyond those of the roster before it is
	// rewritten.
	slack = 4096
)

// syncFile syncs a file. A test replaces it, to see what is synced.
var syncFile = (*os.File).Sync

// Options are what a Roster works with.
type Options struct {
	DataDir string
	Key     *signed.Key
	Log     zerolog.Logger
}

// Roster is what one launcher remembers. Its methods may be called concurrently. A nil
// Roster remembers nothing.
type Roster struct {
	o Options
	// empty says that nothing was remembered at the start.
	empty bool

	mu      sync.Mutex
	known   map[string]lease.Known // by profile
	changed map[string]bool        // the profiles whose present state is not in the file
	wake    chan struct{}          // has an element while changed is not empty

	// Only Run uses these, after Open has returned.
	file  *os.File // nil: not open
	chain *signed.Chain
	lines int // in the file
	// spoilt says that an append has failed since the file was last rewritten.
	spoilt bool
}

// Open reads the roster of a launcher, or begins one. The parts that this launcher has not
// written are logged and set aside, and the profiles that they name are not given away: see
// lease.Known.Unproved. The file is rewritten, so that it can be appended to.
func Open(o Options) (*Roster, error) {
	r := &Roster{o: o, changed: map[string]bool{}, wake: make(chan struct{}, 1)}
	b, err := os.ReadFile(r.path())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("roster: %w", err)
	}
	known, damage := parse(b, o.Key)
	r.known, r.empty = known, len(known) == 0
	if damage != nil {
		aside := r.path() + ".damaged"
		if err := durable.Replace(aside, b); err != nil {
			return nil, fmt.Errorf("roster: %w", err)
		}
		o.Log.Error().Err(damage).Str("path", aside).Msg("what this launcher remembers of profiles is not as it wrote it: it is put aside, and nobody gets a profile that it names before the lease store shows it")
	}
	if err := r.rewrite(); err != nil {
		return nil, fmt.Errorf("roster: %w", err)
	}
	return r, nil
}

func (r *Roster) path() string { return filepath.Join(r.o.DataDir, fileName) }

// parse reads a roster. damage says from where on it is not as the launcher wrote it; what it
// names after that is taken as unproved. An incomplete last line is no damage: it was being
// written when the host went down.
func parse(b []byte, key *signed.Key) (known map[string]lease.Known, damage error) {
	known = map[string]lease.Known{}
	chain := key.Chain(signed.Roster, fileName)
	for n := 1; len(b) > 0; n++ {
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		if !ended && damage == nil {
			return known, nil
		}
		b = rest
		signature, said, _ := strings.Cut(string(line), " ")
		var k lease.Known
		err := json.Unmarshal([]byte(said), &k)
		proved := damage == nil && err == nil && signature == chain.Next(said)
		if damage == nil && !proved {
			damage = fmt.Errorf("line %d: %w", n, signed.ErrNotAuthentic)
		}
		if err != nil || lease.CheckProfileID(k.ProfileID) != nil || k.Home == "" || k.Token > lease.MaxClaim && !proved {
			continue
		}
		if proved {
			known[k.ProfileID] = k
		} else if _, ok := known[k.ProfileID]; !ok {
			k.Unproved = true
			known[k.ProfileID] = k
		}
	}
	return known, damage
}

// Empty tells whether this launcher remembered nothing when it started.
func (r *Roster) Empty() bool { return r == nil || r.empty }

// Of returns what is remembered of a profile; the zero Known if nothing is.
func (r *Roster) Of(profile string) lease.Known {
	if r == nil {
		return lease.Known{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[profile]
}

// All returns everything that is remembered, in no order.
func (r *Roster) All() []lease.Known {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.known))
}

// See takes in a record that the store shows. A record that says less than is remembered, or
// contradicts it, changes nothing.
func (r *Roster) See(rec lease.Record) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.known[rec.ProfileID]
	now := before.Learn(rec)
	if now.Same(before) {
		return
	}
	r.known[rec.ProfileID] = now
	r.changed[rec.ProfileID] = true
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run writes changes to the disk until ctx ends, and then the rest.
func (r *Roster) Run(ctx context.Context) {
	failed := false
	for over := false; !over; {
		pause := batchTime
		if failed {
			pause = retryAfter
		}
		select {
		case <-r.wake:
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		case <-ctx.Done():
			over = true
		}
		err := r.write()
		if err != nil && !failed {
			r.o.Log.Error().Err(err).Msg("what was seen of profiles is not kept: if the lease store forgets now, this launcher does, too, once it ends")
		}
		failed = err != nil
	}
	if err := r.close(); err != nil {
		r.o.Log.Error().Err(err).Msg("the roster was not closed")
	}
}

func (r *Roster) close() error {
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file = nil
	return err
}

// take returns what is not in the file in its present state.
func (r *Roster) take() []lease.Known {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []lease.Known
	for profile := range r.changed {
		all = append(all, r.known[profile])
	}
	clear(r.changed)
	return all
}

// giveBack marks what could not be written, so that it is written later.
func (r *Roster) giveBack(all []lease.Known) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range all {
		r.changed[k.ProfileID] = true
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// write appends what has changed, synced. After a failure the file is rewritten, because it is
// not known which lines are in it. Until that succeeds nothing is appended, because the
// signatures would not follow from those in the file.
func (r *Roster) write() error {
	all := r.take()
	if len(all) == 0 {
		return nil
	}
	var err error
	if !r.spoilt {
		err = r.append(all)
		r.spoilt = err != nil
	}
	if r.spoilt || r.lines > 2*len(r.All())+slack {
		err = r.rewrite()
	}
	if err != nil {
		r.giveBack(all)
	}
	return err
}

func (r *Roster) append(all []lease.Known) (err error) {
	lines, err := r.signed(r.chain, all)
	if err != nil {
		return err
	}
	if r.file == nil {
		if r.file, err = os.OpenFile(r.path(), os.O_WRONLY|os.O_APPEND, 0); err != nil {
			return err
		}
	}
	if _, err := r.file.Write(lines); err != nil {
		return err
	}
	r.lines += len(all)
	return syncFile(r.file)
}

func (r *Roster) signed(chain *signed.Chain, all []lease.Known) ([]byte, error) {
	var lines bytes.Buffer
	for _, k := range all {
		b, err := json.Marshal(k)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&lines, "%s %s\n", chain.Next(string(b)), b)
	}
	return lines.Bytes(), nil
}

// rewrite replaces the roster's file by one that has each profile once.
func (r *Roster) rewrite() error {
	all, chain := r.All(), r.o.Key.Chain(signed.Roster, fileName)
	slices.SortFunc(all, func(a, b lease.Known) int { return strings.Compare(a.ProfileID, b.ProfileID) })
	lines, err := r.signed(chain, all)
	if err != nil {
		return err
	}
	if err := durable.Replace(r.path(), lines); err != nil {
		return err
	}
	r.chain, r.lines, r.spoilt = chain, len(all), false
	return r.close()
}
