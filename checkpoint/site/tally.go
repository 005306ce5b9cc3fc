package site

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"leasehold/checkpoint/shape"
)

// Tally is how often shapes of which nothing was known came in sessions that ended in order. It
// proposes what a file could say, and decides nothing.
type Tally map[string]Count

// Count says in how many sessions a shape came, and what the probes of its site showed at their ends.
type Count struct {
	Sessions uint64 `json:"sessions"`
	// Unchanged and Changed are the sessions at whose ends all probes, or not all, showed what they
	// had shown before. Of the others it is not known.
	Unchanged uint64 `json:"unchanged,omitempty"`
	Changed   uint64 `json:"changed,omitempty"`
	// Accounts stand for the profiles that had these sessions, in their order: the first MaxAccounts.
	Accounts []string  `json:"accounts,omitempty"`
	LastAt   time.Time `json:"last_at"`
}

// Bounds of a tally. One of more shapes loses first those that did not come for forgetAfter, then
// those that came least often, the oldest first.
const (
	MaxAccounts = 10
	maxShapes   = 80
	forgetAfter = 30 * 24 * time.Hour
)

// Plus is what both have counted, in either order the same while it is within the bounds.
func (t Tally) Plus(o Tally) Tally {
	sum := maps.Clone(t)
	if sum == nil {
		sum = Tally{}
	}
	for shp, c := range o {
		sum[shp] = sum[shp].plus(c)
	}
	for len(sum) > maxShapes || len(sum.Encode()) > MaxBytes {
		delete(sum, sum.least())
	}
	return sum
}

func (c Count) plus(o Count) Count {
	accounts := slices.Sorted(slices.Values(slices.Concat(c.Accounts, o.Accounts)))
	accounts = slices.Compact(accounts)
	sum := Count{c.Sessions + o.Sessions, c.Unchanged + o.Unchanged, c.Changed + o.Changed, accounts[:min(len(accounts), MaxAccounts)], c.LastAt}
	if o.LastAt.After(c.LastAt) {
		sum.LastAt = o.LastAt
	}
	return sum
}

// least is the shape that is lost first.
func (t Tally) least() string {
	newest := time.Time{}
	for _, c := range t {
		if c.LastAt.After(newest) {
			newest = c.LastAt
		}
	}
	lately := func(c Count) int { return b2i(newest.Sub(c.LastAt) < forgetAfter) }
	return slices.MinFunc(slices.Collect(maps.Keys(t)), func(x, y string) int {
		a, b := t[x], t[y]
		return cmp.Or(cmp.Compare(lately(a), lately(b)), cmp.Compare(a.Sessions, b.Sessions), a.LastAt.Compare(b.LastAt), cmp.Compare(x, y))
	})
}

// Encode is the tally in JSON.
func (t Tally) Encode() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // an & is in most shapes
	_ = e.Encode(t)        // it consists of texts and numbers
	return b.Bytes()
}

// ShownAbout tells whether the probes about the account at a URL all show what they showed before, or
// one of them does not. It is neither if one cannot be compared with what it showed then, or if there is none.
// Probes that are no alarm show nothing.
func ShownAbout(raw string, answers []Compared) (unchanged, changed bool) {
	asked, equal := 0, 0
	for _, c := range answers {
		if c.Identity || !c.Alarms() || !c.file.Owns(raw) {
			continue
		}
		asked, equal, changed = asked+1, equal+b2i(c.Equal && !c.From.Earlier), changed || c.Moved && !c.From.Earlier
	}
	return asked > 0 && equal == asked, changed
}

// Proposes is what the file could say of a shape, if a person agrees: Read, if it came in many sessions
// of more than one account, and the probes never showed a change; otherwise nothing.
func (f File) Proposes(shp string, c Count) string {
	if _, said := f.About(shp); said || c.Unchanged < ProposeAfter || c.Changed > 0 || len(c.Accounts) < ProposeAccounts {
		return ""
	}
	if _, _, err := f.compileLine(Line{Shape: shp, Is: Read}); err != nil {
		return ""
	}
	return Read
}

// A line is proposed once the probes have shown no change in ProposeAfter sessions of ProposeAccounts
// accounts.
const (
	ProposeAfter    = 10
	ProposeAccounts = 2
)

// NameFor is the name under which a URL's site is counted: that of the file that names its origin
// nearest or, if known is false, the one that such a file would get.
func (b *Book) NameFor(raw string) (name string, known bool) {
	b.of(raw, func(s *site) bool { name, known = s.file.Name, true; return true })
	if !known {
		name = NameOf(raw)
	}
	return name, known
}

// NameOf is the name that a file about a URL's host gets, if somebody teaches what nobody knew.
func NameOf(raw string) string {
	_, host, _ := strings.Cut(shape.OriginOf(raw), "://")
	return nameOf(host)
}
