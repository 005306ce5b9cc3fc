package findings

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"leasehold/checkpoint"
	"leasehold/checkpoint/shape"
	"leasehold/checkpoint/site"
	"leasehold/checkpoint/wording"
	"leasehold/launcher/recovery/table"
)

// sortedRequests are unsafe requests, by what they say about the account.
type sortedRequests struct {
	counted   []checkpoint.Entry // may have changed the account
	queries   []checkpoint.Entry // GraphQL queries, which only ask
	declared  []checkpoint.Entry // declared by the profile's owner to change nothing
	reads     []checkpoint.Entry // known to only read, by the file of their site
	covered   []checkpoint.Entry // did nothing, as an answer of their site shows, see covered
	anonymous []checkpoint.Entry // their sites cannot have known the account, see anonymous
	blocked   []checkpoint.Entry // never left the browser
}

// sorted sorts some of a session's unsafe requests.
func sorted(sent []checkpoint.Entry, s checkpoint.Summary, t Task) sortedRequests {
	var r sortedRequests
	r.counted, r.queries = split(sent, answeredQuery(t))
	r.counted, r.declared = split(r.counted, func(e checkpoint.Entry) bool { return slices.Contains(t.Harmless, e.Declared) && harmless(t)(e) })
	r.counted, r.reads = split(r.counted, harmless(t))
	r.counted, r.covered = split(r.counted, covered(t))
	r.counted, r.anonymous = split(r.counted, anonymous(s, t))
	r.counted, r.blocked = split(r.counted, func(e checkpoint.Entry) bool { return e.Blocked })
	return r
}

// answeredQuery returns a function that tells which requests are GraphQL queries that were answered
// with something to read, or refused. A request to a sensitive place is none.
func answeredQuery(t Task) func(checkpoint.Entry) bool {
	return func(e checkpoint.Entry) bool {
		read := e.Status == http.StatusOK || e.Status >= 400
		return e.Name == checkpoint.GraphQLQuery && e.Known != site.Write && e.Method == http.MethodPost && read && !e.Sensitive && !SensitiveURL(e.URL, t) && !saidToWrite(e, t)
	}
}

// harmless returns a function that tells which requests change nothing, because the profile's owner
// declares that, or because the file of their site says that they only read. That must have been
// said when the request was sent, and must still be what is said of it now. It goes before the words that usually
// make a place sensitive, and not before what the task or the file calls sensitive.
func harmless(t Task) func(checkpoint.Entry) bool {
	return func(e checkpoint.Entry) bool {
		said := e.Declared != "" && slices.Contains(t.Harmless, e.Declared) || e.Known == site.Read && stands(e, t)
		return said && !e.Sensitive && !NamedSensitive(e.URL, t)
	}
}

// stands tells whether the line by which a request is known still decides about it.
func stands(e checkpoint.Entry, t Task) bool {
	holds, _ := t.Sites.Now(noted(e), e.At)
	return holds
}

// saidToWrite tells whether it was said since a request was sent that it writes, or may.
func saidToWrite(e checkpoint.Entry, t Task) bool {
	_, writes := t.Sites.Now(noted(e), e.At)
	return writes
}

// noted is what is kept of a request. The shape of a GET after an act is that of its address.
func noted(e checkpoint.Entry) site.Noted {
	shp := e.Shape
	if shp == "" && e.Kind == checkpoint.KindGetAfter {
		shp = shape.Of(shape.Request{Method: http.MethodGet, URL: e.URL, Whole: true})
	}
	return site.Noted{Method: e.Method, Shape: shp, URL: e.URL, Plain: e.Plain, Line: e.KnownBy, Repeatable: e.Repeatable}
}

// covered returns a function that tells which requests did nothing, because an answer of their site
// that is what it was before the session proves that, as the file of the site says. They have to be
// answered: what is still under way may do something later.
func covered(t Task) func(checkpoint.Entry) bool {
	return func(e checkpoint.Entry) bool {
		answered := e.Status != 0 && e.Failed == ""
		if e.Kind == checkpoint.KindGetWrite {
			answered = Sign(e.Name) != Unanswered
		}
		return answered && !e.Sensitive && !NamedSensitive(e.URL, t) && slices.ContainsFunc(t.Unchanged, func(q site.Question) bool { return q.Covers(e.Shape, e.URL, e.Plain) })
	}
}

// quiet returns a function that tells which GETs do not count as writes.
func quiet(t Task) func(checkpoint.Entry) bool {
	reads, nothing := harmless(t), covered(t)
	return func(e checkpoint.Entry) bool { return reads(e) || nothing(e) }
}

// again returns a function that tells which requests may be made again after a checkpoint that
// declares something: those whose shapes it names, unless they may do more than their shapes tell, and
// those that are known as repeatable. What was not answered may be made again, too: that is what the words
// mean.
func again(safe checkpoint.Entry, t Task) func(checkpoint.Entry) bool {
	var patterns []shape.Pattern
	for _, text := range safe.IdempotentShapes {
		if p, err := shape.ParsePattern(text); err == nil { // the checkpoint was refused otherwise
			patterns = append(patterns, p)
		}
	}
	return func(e checkpoint.Entry) bool {
		said := shape.ReadShape(e.Shape, "")
		named := e.Plain && slices.ContainsFunc(patterns, func(p shape.Pattern) bool { return p.Covers(said) })
		return named || e.Repeatable && stands(e, t)
	}
}

// idempotentSince is the fact whether all that may have changed the account since the safe
// checkpoint may be done again, because the checkpoint says so.
func idempotentSince(s checkpoint.Summary, r sortedRequests, t Task) table.Fact {
	f := table.Fact{Name: table.IdempotentSince, Answer: table.No, How: "the checkpoint does not say so"}
	if s.LastSafe == nil || !s.LastSafe.Idempotent {
		return f
	}
	writes, _ := split(s.WritesSince, quiet(t))
	others, _ := split(slices.Concat(r.counted, writes), again(*s.LastSafe, t))
	if len(others) == 0 {
		f.Answer, f.How = table.Yes, "the checkpoint says so of all that followed"
		return f
	}
	last := others[len(others)-1]
	f.How = fmt.Sprintf("neither the checkpoint nor what is known of its site says so of %d, the last %s", times(others), cmp.Or(last.Shape, last.Method+" "+last.URL))
	return f
}

// split divides requests into those that count, and those for which bare returns true.
func split(sent []checkpoint.Entry, bare func(checkpoint.Entry) bool) (counted, others []checkpoint.Entry) {
	for _, e := range sent {
		if bare(e) {
			others = append(others, e)
		} else {
			counted = append(counted, e)
		}
	}
	return counted, others
}

// anonymous returns a function that tells which requests were not made as the account: they
// carried nothing by which their site could know it, and that site is none of the account's, which
// are those of the pages that were open and of the expected domains. The monitor finds out what a
// request carried, and reports it with the answer. A request to a sensitive place is never
// anonymous.
func anonymous(s checkpoint.Summary, t Task) func(checkpoint.Entry) bool {
	own := map[string]bool{}
	for _, p := range s.Pages {
		own[Site(p.URL)] = true
	}
	return func(e checkpoint.Entry) bool {
		return e.Anonymous && !own[Site(e.URL)] && inDomains(e.URL, t.Domains()).Answer != table.Yes && !e.Sensitive && !SensitiveURL(e.URL, t) && e.Known != site.Write && !saidToWrite(e, t)
	}
}

func requests(name string, sent []checkpoint.Entry) table.Fact {
	if len(sent) == 0 {
		return table.Fact{Name: name, Answer: table.No, How: "none was seen"}
	}
	last := sent[len(sent)-1]
	return table.Fact{Name: name, Answer: table.Yes, How: strings.TrimSpace(fmt.Sprintf("%d seen, the last %s %s", times(sent), last.Method, last.URL)) + answered(last)}
}

// unsafeFact is the fact about the requests that count. Its text also says how many others were
// not counted.
func unsafeFact(name string, r sortedRequests) table.Fact {
	f := requests(name, r.counted)
	if len(r.queries) > 0 {
		f.How += fmt.Sprintf("; %d GraphQL queries are not counted", times(r.queries))
	}
	if len(r.declared) > 0 {
		f.How += fmt.Sprintf("; %d that the profile declares harmless are not counted, the last as %q", times(r.declared), r.declared[len(r.declared)-1].Declared)
	}
	if len(r.reads) > 0 {
		f.How += fmt.Sprintf("; %d that are known to only read are not counted, the last by %q", times(r.reads), r.reads[len(r.reads)-1].KnownBy)
	}
	if len(r.covered) > 0 {
		f.How += fmt.Sprintf("; %d that did nothing, by what their site says, are not counted", times(r.covered))
	}
	if len(r.anonymous) > 0 {
		f.How += fmt.Sprintf("; %d that carried nothing of the account are not counted", times(r.anonymous))
	}
	if len(r.blocked) > 0 {
		f.How += fmt.Sprintf("; %d that never left the browser are not counted", times(r.blocked))
	}
	return f
}

// andInFlight says in a fact how many of the requests were sent before the safe checkpoint.
func (r sortedRequests) andInFlight(f table.Fact, inFlight sortedRequests) table.Fact {
	if n := times(inFlight.counted); n > 0 {
		f.How += fmt.Sprintf("; %d of them were sent before it, and not answered when it was named", n)
	}
	return f
}

// answered is the end of a sentence about a request.
func answered(e checkpoint.Entry) string {
	if a := wording.Answer(e); a != "" {
		return " (" + a + ")"
	}
	return ""
}

// SentRequest is one unsafe request, as it is shown to people.
type SentRequest struct {
	checkpoint.Entry
	// Counts says how it counts: unsafe, query, harmless (declared, known as read, or shown by its
	// site to have done nothing), anonymous or blocked.
	Counts string
	// SinceSafe says that the last safe checkpoint does not vouch for it.
	SinceSafe bool
}

// MaxListed is how many requests Requests lists at most.
const MaxListed = 50

// Requests lists the last unsafe requests of a session. If there are too many, those that count
// are kept first.
func Requests(s checkpoint.Summary, t Task) []SentRequest {
	all := sorted(s.Unsafe, s, t)
	since := map[[2]uint64]bool{} // every run has a journal of its own
	for _, e := range s.UnsafeSince {
		since[[2]uint64{e.Token, e.Seq}] = true
	}
	var list []SentRequest
	for _, kind := range []struct {
		counts string
		sent   []checkpoint.Entry
	}{{"unsafe", all.counted}, {"anonymous", all.anonymous}, {"harmless", all.declared}, {"harmless", all.reads}, {"harmless", all.covered}, {"query", all.queries}, {"blocked", all.blocked}} {
		room := MaxListed - len(list)
		for _, e := range kind.sent[max(0, len(kind.sent)-room):] {
			list = append(list, SentRequest{e, kind.counts, since[[2]uint64{e.Token, e.Seq}]})
		}
	}
	slices.SortStableFunc(list, func(a, b SentRequest) int { return a.At.Compare(b.At) })
	return list
}
