package findings

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/shape"
	"leasehold/checkpoint/site"
	"leasehold/launcher/recovery/table"
)

// A recovery can be decided again, as if the files about sites had been others all the time. What they say
// of a request depends on the request, of which only the shape is kept. So each verdict is told from what
// is kept, or is in doubt; a decision is told only if it is the same whatever the truth about all doubts.

// Past is what is kept of a recovery for that.
type Past struct {
	EvidenceID string    `json:"evidence_id"`
	ProfileID  string    `json:"profile_id"`
	At         time.Time `json:"at"`
	// Outcome and Version are the decision that was made, and that of the table which made it.
	Outcome string `json:"outcome"`
	Version int    `json:"version"`
	// Origins are those of the pages and requests of its session.
	Origins []string `json:"origins,omitempty"`
	// Gap is why it cannot be decided again, whatever the files; then the rest is empty.
	Gap string `json:"gap,omitempty"`

	Facts   table.Inspection   `json:"facts,omitempty"`
	Task    Task               `json:"task"`
	Entries []checkpoint.Entry `json:"entries,omitempty"`
	// Files are those about the sites of the session, as they were.
	Files []site.File `json:"files,omitempty"`
	// SessionCheck says that the profile has one, and Asked that the sites and that check were asked,
	// with the Answers.
	SessionCheck bool         `json:"session_check,omitempty"`
	Asked        bool         `json:"asked,omitempty"`
	Answers      []PastAnswer `json:"answers,omitempty"`
}

// PastAnswer is a question that was asked, by its ID and what it means, and whether its answer was what it
// was before the session, and at its last safe checkpoint.
type PastAnswer struct {
	ID                 string `json:"id"`
	Means              string `json:"means"`
	Unchanged          bool   `json:"unchanged,omitempty"`
	UnchangedSinceSafe bool   `json:"unchanged_since_safe,omitempty"`
}

// What is kept of one recovery is bounded: in bytes of JSON, and in origins.
const (
	maxPast    = 256 << 10
	maxOrigins = 50
)

// Keep fills in what is kept of a recovery: of its journal, of the facts that were found, and of what was
// known of sites, by the book of t. asked says that sites were asked.
func (p Past) Keep(journal []checkpoint.Entry, found table.Inspection, t Task, asked bool) Past {
	for _, e := range journal {
		if o := shape.OriginOf(e.URL); o != "" && len(p.Origins) < maxOrigins && !slices.Contains(p.Origins, o) {
			p.Origins = append(p.Origins, o)
		}
	}
	bare := p
	var begun time.Time
	if len(journal) > 0 {
		begun = journal[0].At
	}
	if t.Sites != nil && !t.Sites.Since.IsZero() && t.Sites.Since.After(begun) {
		bare.Gap = "what was known of sites changed while the session ran"
		return bare
	}
	p.Facts, p.Task, p.Asked = found, t, asked
	for _, e := range journal {
		if kept(e) {
			e.Data, e.Text = nil, ""
			p.Entries = append(p.Entries, e)
		}
	}
	s := checkpoint.Summarize(p.Entries)
	if asked {
		for _, q := range asksOf(s, t) {
			same := func(o site.Question) bool { return o.ID() == q.ID() }
			p.Answers = append(p.Answers, PastAnswer{q.ID(), q.Means(), slices.ContainsFunc(t.Unchanged, same), slices.ContainsFunc(t.UnchangedSinceSafe, same)})
		}
	}
	p.Files = t.Sites.About(urlsOf(p.Entries))
	b, err := json.Marshal(p)
	switch {
	case err != nil || len(b) > maxPast:
		bare.Gap = "its session did more than is kept of one"
	case !slices.ContainsFunc(InspectTask(s, t), func(f table.Fact) bool {
		return slices.Contains(bySites, f.Name) && f.Answer != found.Answer(f.Name)
	}):
		return p
	default:
		bare.Gap = "what is kept of its journal does not show what was found"
	}
	return bare
}

// kept tells whether an entry of a journal is kept: facts that depend on what is known of sites depend on it.
func kept(e checkpoint.Entry) bool {
	switch e.Kind {
	case checkpoint.KindStart, checkpoint.KindURL, checkpoint.KindClosed, checkpoint.KindFrame, checkpoint.KindStep, checkpoint.KindRequest, checkpoint.KindGetWrite, checkpoint.KindGetAfter:
		return true
	case checkpoint.KindCheckpoint:
		return e.Safe
	case checkpoint.KindAnswer:
		return e.Request != ""
	}
	return false
}

// bySites are the facts about a task that depend on what is known of sites.
var bySites = []string{
	table.SensitivePlace, table.SensitiveSinceSafe, table.UnsafeRequests, table.UnsafeSinceSafe, table.UnansweredAtSafe, table.HarmlessSent, table.Anonymous,
	table.WritesByGet, table.WritesByGetSinceSafe, table.GetsAfterAction, table.GetsAfterActionSince, table.IdempotentSince,
}

// asksOf is what the sites of a session are asked, and which of their pages are opened.
func asksOf(s checkpoint.Summary, t Task) []site.Question {
	return slices.Concat(Questions(s, t), Rehearsals(s, t))
}

func urlsOf(entries []checkpoint.Entry) (urls []string) {
	for _, e := range entries {
		if e.URL != "" && !slices.Contains(urls, e.URL) {
			urls = append(urls, e.URL)
		}
	}
	return urls
}

// Concerns tells whether the session had to do with the site of a file.
func (p Past) Concerns(f site.File) bool {
	return slices.ContainsFunc(p.Origins, func(o string) bool { return f.Owns(o + "/") })
}

// Again is the decision that the table of now would have made if book had been what is known of the sites
// of the session. doubt says why that cannot be told; then there is no decision.
func (p Past) Again(book *site.Book, besides ...table.Caution) (d table.Decision, doubt string) {
	then, wrong := site.NewBook(p.Files)
	now, _ := site.NewBook(book.About(urlsOf(p.Entries))) // they are in a book already
	switch {
	case p.Gap != "":
		return d, p.Gap
	case p.Version != table.Version:
		return d, fmt.Sprintf("it was decided by version %d of the table, and this is version %d", p.Version, table.Version)
	case len(wrong) > 0:
		return d, "the files of then cannot be read any more: " + wrong[0].Error()
	}
	r := replay{past: p, then: then, task: p.Task}
	r.task.Sites = book
	if line := now.NewGET(then); line != "" {
		r.unseenWrite("the GETs that a session sent are not kept, and the line %q is about some", line)
	}
	r.sameGETs, r.newPlace = now.SameOfGETs(then), now.NewPlace(then)
	if place := r.newPlace; place != "" {
		r.unseenPlace("the frames inside its pages are not kept, and the place %q is new", place)
	}
	if !r.sameGETs && then.JudgesGETs() { // they may have been known to only read
		r.unseenPlace("the frames inside its pages are not kept, and what is known of GETs has changed")
	}
	for _, e := range p.Entries {
		r.judge(e)
	}
	least, most := r.decide(r.low, false, besides), r.decide(r.high, true, besides)
	// which requests are harmless may speak against letting go by configuration only
	unclear := len(r.doubts) > 0 && slices.ContainsFunc(besides, func(c table.Caution) bool { return c.Fact == table.HarmlessSent || c.Fact == table.Anonymous })
	if least.Outcome != most.Outcome || unclear {
		return d, r.doubts[0]
	}
	return most, ""
}

// replay decides twice: by what speaks most against letting the profile go, of all that may be true, and
// by what speaks least against it.
type replay struct {
	past      Past
	then      *site.Book
	task      Task
	low, high []checkpoint.Entry
	doubts    []string
	newPlace  string // a sensitive place that was none then
	sameGETs  bool   // the files say of GETs and of sensitive places what they said then
	// worst are the facts that hold if something of which nothing is kept was a write, or sensitive.
	worst table.Inspection
}

func (r *replay) doubt(format string, args ...any) {
	r.doubts = append(r.doubts, fmt.Sprintf(format, args...))
}

// unseenWrite says that a GET may have been a write of which nothing is kept.
func (r *replay) unseenWrite(format string, args ...any) {
	r.doubt(format, args...)
	r.worst = append(r.worst, table.Fact{Name: table.WritesByGet, Answer: table.Yes}, table.Fact{Name: table.WritesByGetSinceSafe, Answer: table.Yes}, table.Fact{Name: table.IdempotentSince, Answer: table.No})
}

// unseenPlace says that a place may have been sensitive of which nothing is kept.
func (r *replay) unseenPlace(format string, args ...any) {
	r.doubt(format, args...)
	r.worst = append(r.worst, table.Fact{Name: table.SensitivePlace, Answer: table.Yes}, table.Fact{Name: table.SensitiveSinceSafe, Answer: table.Yes})
}

// judge takes in an entry, with what would have been noted of it.
func (r *replay) judge(e checkpoint.Entry) {
	asks := e.Kind == checkpoint.KindRequest && e.Method != checkpoint.Unseen || e.Kind == checkpoint.KindGetWrite || e.Kind == checkpoint.KindGetAfter
	if !asks {
		low, high := e, e
		if e.Kind == checkpoint.KindURL || e.Kind == checkpoint.KindFrame {
			low.Sensitive, high.Sensitive = r.sensitive(e, false)
		}
		r.low, r.high = append(r.low, low), append(r.high, high)
		return
	}
	v, doubt := r.verdict(e)
	low := e
	low.Known, low.KnownBy, low.Repeatable = v.Is, v.Line, v.Repeatable
	if doubt != "" { // at worst it is a write, at best it would not count
		r.doubt("%s: %s", cmp.Or(e.Shape, e.Method+" "+e.URL), doubt)
		low.Known = site.Write
		low.Sensitive, _ = r.sensitive(e, false)
		r.low = append(r.low, low)
		return
	}
	high := low
	named := e.Declared != "" || v.Is == site.Read || e.Shape != "" && r.task.Sites.Covers(e.Shape, e.URL, e.Plain)
	low.Sensitive, high.Sensitive = r.sensitive(e, named)
	r.low, r.high = append(r.low, low), append(r.high, high)
}

// verdict is what would have been known of a request.
func (r *replay) verdict(e checkpoint.Entry) (site.Verdict, string) {
	if len(e.URL) >= checkpoint.MaxText {
		return site.Verdict{}, "its address is not kept as a whole"
	}
	n := noted(e)
	if n.Shape == "" {
		return site.Verdict{}, "its shape is not kept"
	}
	if e.Kind != checkpoint.KindGetWrite || Sign(e.Name) != Known {
		return r.task.Sites.Again(n, r.then)
	}
	n.Moved = true
	v, doubt := r.task.Sites.Again(n, r.then)
	if doubt == "" && v.Line != e.KnownBy {
		return site.Verdict{}, "it is not kept where it was redirected to, nor how it was answered"
	}
	return v, doubt
}

// sensitive is whether a URL would have been noted as sensitive, at worst and at best. named says that
// only what is called sensitive counts, and no word.
func (r *replay) sensitive(e checkpoint.Entry, named bool) (low, high bool) {
	if !site.Partial(e.URL) && len(e.URL) < checkpoint.MaxText {
		if named {
			low = NamedSensitive(e.URL, r.task)
		} else {
			low = SensitiveURL(e.URL, r.task)
		}
		return low, low
	}
	wasNamed := e.Declared != "" || e.Known == site.Read || e.Shape != "" && r.then.Covers(e.Shape, e.URL, e.Plain)
	switch {
	case r.sameGETs && named == wasNamed:
		return e.Sensitive, e.Sensitive
	case r.sameGETs && named:
		low, high = e.Sensitive, false
	case r.sameGETs:
		low, high = true, e.Sensitive
	default:
		low, high = e.Sensitive || !named && (wasNamed || r.then.JudgesGETs()) || r.newPlace != "", false
	}
	if low != high {
		r.doubt("%s: it is not kept as a whole, and may be sensitive", e.URL)
	}
	return low, high
}

// decide decides by entries; best says that what was not asked counts as well as it can.
func (r *replay) decide(entries []checkpoint.Entry, best bool, besides []table.Caution) table.Decision {
	p, s := r.past, checkpoint.Summarize(entries)
	t := r.task
	found := p.Facts
	asks := asksOf(s, t)
	t.Unchanged, t.UnchangedSinceSafe = nil, nil
	missing, gone := "", len(p.Answers)
	for _, q := range asks {
		i := slices.IndexFunc(p.Answers, func(a PastAnswer) bool { return a.ID == q.ID() && a.Means == q.Means() })
		if i < 0 {
			missing = q.ID()
			if best && !q.Identity && !(q.Opens && q.TakeText == "") {
				t.Unchanged, t.UnchangedSinceSafe = append(t.Unchanged, q), append(t.UnchangedSinceSafe, q)
			}
			continue
		}
		gone--
		if p.Answers[i].Unchanged {
			t.Unchanged = append(t.Unchanged, q)
		}
		if p.Answers[i].UnchangedSinceSafe {
			t.UnchangedSinceSafe = append(t.UnchangedSinceSafe, q)
		}
	}
	said := func(identity, changed, check, waiting table.Answer) {
		found = found.With(table.Fact{Name: table.IdentityKept, Answer: identity}, table.Fact{Name: table.Rehearsed, Answer: identity}, table.Fact{Name: table.ProbeChanged, Answer: changed}, table.Fact{Name: table.ProbeChangedSinceSafe, Answer: changed})
		if !p.Asked && p.SessionCheck {
			found = found.With(table.Fact{Name: table.SessionCheckFailed, Answer: check})
		}
		if missing != "" {
			found = found.With(table.Fact{Name: table.WritesWaiting, Answer: waiting})
		}
	}
	fine := found.Answer(table.IdentityKept) == table.Yes && found.Answer(table.ProbeChanged) != table.Yes && found.Answer(table.WritesWaiting) != table.Yes && found.Answer(table.Rehearsed) != table.No
	switch unasked := !p.Asked && (p.SessionCheck || len(asks) > 0); {
	case missing == "" && !unasked && (gone == 0 || fine):
	case !table.Whole(found): // nobody would ask
	case best:
		said(table.Yes, table.No, table.No, found.Answer(table.WritesWaiting))
		if gone > 0 {
			found = found.With(table.Fact{Name: table.WritesWaiting, Answer: table.No})
		}
	default:
		if missing != "" {
			r.doubt("the site was not asked %s", missing)
		} else if unasked {
			r.doubt("the site was not asked whether the account is signed in")
		} else {
			r.doubt("it is not kept which question showed what speaks against it")
		}
		said(table.No, table.Yes, table.Yes, table.Yes)
	}
	for _, f := range InspectTask(s, t) {
		if slices.Contains(bySites, f.Name) {
			found = found.With(f)
		}
	}
	if !best {
		found = found.With(r.worst...)
	}
	return table.Decide(found, besides...)
}
