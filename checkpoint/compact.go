package checkpoint

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// A journal is bounded: a page or a worker may write as much as it likes, but only a few
// megabytes of it are kept. Compact makes room in three ways, each only as far as needed: equal
// entries become one with a count; data that decides nothing is left out; and at last entries
// are left out. Left-out entries are counted in an entry of KindOmitted for each kind. If the
// kind matters to a decision, Summary.LeftOut has it, and a person decides.

// Limits bound a journal.
type Limits struct {
	Entries int
	Bytes   int // as a file
	// Data is the most bytes that the Data of an entry other than a checkpoint may have.
	Data int
}

// DefaultLimits are the limits of Open.
var DefaultLimits = Limits{Entries: 10_000, Bytes: 4 << 20, Data: 64 << 10}

// keptNoise is how many of the newest entries of each kind that decides nothing are kept
// longest.
const keptNoise = 64

// Times is the number of entries that this one stands for.
func (e Entry) Times() uint64 { return max(1, e.Count) }

// decides tells whether entries of a kind can matter to a decision.
func (k Kind) decides() bool {
	switch k {
	case KindURL, KindFrame, KindStep, KindRequest, KindGetWrite, KindAnswer, KindForm, KindDownload, KindUnfinished, KindDialog, KindStorage, KindCookie, KindCrash, KindPerson:
		return true
	case KindCheckpoint: // only the last safe one, which is never left out
		return false
	}
	return false
}

// Compact returns the entries of one journal, reduced to half of the limits, in their order. So
// a journal that one more entry made too large then has room for as many again.
func Compact(entries []Entry, limits Limits) []Entry {
	entries = fold(pair(entries))
	c := compaction{entries: entries, limits: limits, gone: make([]bool, len(entries)), sizes: make([]int, len(entries))}
	for i, e := range entries {
		c.sizes[i] = size(e)
		c.bytes += c.sizes[i]
	}
	c.left = len(entries)
	c.protect()
	c.leaveData()
	c.leaveOut()
	return c.result()
}

// fold makes one entry of equal ones, at the position of the last of them. Since a summary only
// distinguishes what came before and after the last safe checkpoint, entries on either side of
// it are folded separately.
func fold(entries []Entry) []Entry {
	boundary := lastSafe(entries)
	later := map[string]int{} // positions in folded of the last of equal entries
	var folded []Entry
	for i, e := range slices.Backward(entries) {
		if i == boundary {
			clear(later)
		}
		key, foldable := foldKey(e)
		at, known := later[key]
		if !foldable || !known {
			later[key] = len(folded)
			folded = append(folded, e)
			continue
		}
		kept := &folded[at]
		kept.Count = kept.Times() + e.Times()
		kept.First = e.firstAt()
	}
	slices.Reverse(folded)
	return folded
}

func lastSafe(entries []Entry) int {
	for i, e := range slices.Backward(entries) {
		if e.Kind == KindCheckpoint && e.Safe {
			return i
		}
	}
	return -1
}

func (e Entry) firstAt() time.Time {
	if !e.First.IsZero() {
		return e.First
	}
	return e.At
}

// foldKey is the same for entries that can become one. Connections are not foldable, because
// their order matters, nor are pictures, which are few.
func foldKey(e Entry) (key string, foldable bool) {
	switch e.Kind {
	case KindStart, KindConnection, KindPicture, KindEnd:
		return "", false
	case KindOmitted:
		return string(KindOmitted) + " " + e.Name, true
	case KindCheckpoint:
		e.Data = nil // of several with one name, the last one has it
	}
	e.Seq, e.At, e.Count, e.First = 0, time.Time{}, 0, time.Time{}
	b, err := json.Marshal(e)
	return string(b), err == nil
}

func size(e Entry) int {
	b, _ := json.Marshal(e) // an entry that cannot be encoded was not appended
	return len(b) + 1
}

// compaction is one call of Compact on folded entries.
type compaction struct {
	entries []Entry
	limits  Limits
	kept    []bool // those that are never left out
	gone    []bool
	sizes   []int
	bytes   int
	left    int
}

func (c *compaction) full() bool {
	return c.bytes > c.limits.Bytes/2 || c.left > c.limits.Entries/2
}

// protect marks what is never left out: the beginning, the last safe checkpoint, the last page,
// step and GET after an action before it and of all, the last card or bank account that was
// typed, and the counts of what was left out before.
func (c *compaction) protect() {
	c.kept = make([]bool, len(c.entries))
	safe := lastSafe(c.entries)
	seen, paid := map[Kind]bool{}, false
	for i, e := range slices.Backward(c.entries) {
		if i == safe {
			clear(seen)
			c.kept[i] = true
		}
		switch e.Kind {
		case KindStart, KindOmitted, KindEnd:
			c.kept[i] = true
		case KindURL, KindStep, KindConnection, KindGetAfter:
			c.kept[i] = c.kept[i] || !seen[e.Kind]
		case KindTyped:
			pays := Field(e.Name).Pays()
			c.kept[i], paid = pays && !paid, paid || pays
		}
		seen[e.Kind] = true
	}
}

// leaveData leaves out the data of entries that decide nothing, the oldest first.
func (c *compaction) leaveData() {
	safe := lastSafe(c.entries)
	for i, e := range c.entries {
		if !c.full() {
			return
		}
		if i != safe && (e.Kind == KindEvent || e.Kind == KindCheckpoint) && len(e.Data) > 0 {
			c.entries[i] = withoutData(e)
			after := size(c.entries[i])
			c.bytes += after - c.sizes[i]
			c.sizes[i] = after
		}
	}
}

// withoutData is an entry that says how much data it had.
func withoutData(e Entry) Entry {
	e.Text = fmt.Sprintf("%d bytes of data left out", len(e.Data))
	e.Data = nil
	return e
}

// leaveOut leaves out entries, the oldest first: at first entries of kinds that decide nothing,
// except the newest of each; then all of these; then those of the others that are not
// sensitive; then everything that is not protected. That a page was closed stays as long as what it
// showed: otherwise it would count as open.
func (c *compaction) leaveOut() {
	newest := c.newestNoise()
	shown := map[string]int{} // entries about what a page showed that are left, by target
	for _, e := range c.entries {
		if e.shows() {
			shown[e.Target]++
		}
	}
	for _, may := range []func(i int, e Entry) bool{
		func(i int, e Entry) bool { return !e.Kind.decides() && !newest[i] },
		func(_ int, e Entry) bool { return !e.Kind.decides() },
		func(_ int, e Entry) bool { return !e.Sensitive },
		func(int, Entry) bool { return true },
	} {
		for i, e := range c.entries {
			if !c.full() {
				return
			}
			if !c.kept[i] && !c.gone[i] && may(i, e) && (e.Kind != KindClosed || shown[e.Target] == 0) {
				if e.shows() {
					shown[e.Target]--
				}
				c.gone[i] = true
				c.bytes -= c.sizes[i]
				c.left--
			}
		}
	}
}

// shows tells whether an entry is about what a page shows.
func (e Entry) shows() bool { return e.Kind == KindURL || e.Kind == KindFrame }

// newestNoise are the newest entries of each kind that decides nothing.
func (c *compaction) newestNoise() map[int]bool {
	newest, count := map[int]bool{}, map[Kind]int{}
	for i, e := range slices.Backward(c.entries) {
		if !e.Kind.decides() && count[e.Kind] < keptNoise {
			newest[i] = true
			count[e.Kind]++
		}
	}
	return newest
}

// result is what is left. The counts of what was left out come first, or after the start, if
// there is one.
func (c *compaction) result() []Entry {
	marks := map[Kind]*Entry{}
	var kinds []Kind
	mark := func(kind Kind, e Entry, times uint64) {
		m := marks[kind]
		if m == nil {
			kinds = append(kinds, kind)
			m = &Entry{Seq: e.Seq, Token: e.Token, Kind: KindOmitted, Name: string(kind), At: e.At, First: e.firstAt()}
			marks[kind] = m
		}
		m.Count += times
		m.At = e.At
	}
	var rest []Entry
	for i, e := range c.entries {
		switch {
		case e.Kind == KindOmitted:
			mark(Kind(e.Name), e, e.Times())
		case c.gone[i]:
			mark(e.Kind, e, e.Times())
		default:
			rest = append(rest, e)
		}
	}
	var out []Entry
	if len(rest) > 0 && rest[0].Kind == KindStart {
		out, rest = rest[:1:1], rest[1:]
	}
	for _, kind := range kinds {
		m := *marks[kind]
		m.Text = fmt.Sprintf("%d entries of kind %s left out, the last of %s", m.Count, kind, m.At.UTC().Format(time.RFC3339))
		// Entries of several runs are merged by their time: a later time would delay what comes
		// after it.
		m.At = m.firstAt()
		out = append(out, m)
	}
	return append(out, rest...)
}
