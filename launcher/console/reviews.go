package console

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/catalog"
	"leasehold/launcher/principal"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/recovery/table"
	"leasehold/lease"
)

// The bounds of the page of alike reviews.
const (
	maxReviews  = 300 // reviews that are looked at, those that wait longest
	maxTogether = 50  // reviews that are decided by one form
	// decideTimeout bounds how long that may take; the person may leave meanwhile.
	decideTimeout = 2 * time.Minute
)

// waitingReview is a profile that waits for a person, and what its recovery found.
type waitingReview struct {
	record     api.Profile
	inspection api.Inspection
	// unread says why that is not known; empty: it is.
	unread string
}

// reviewsView is what the page of alike reviews shows.
type reviewsView struct {
	Query   string
	Who     principal.Principal
	Form    form
	Problem string
	// Groups are those that are alike, most first; Single are the others, and Cut is how many more were
	// not looked at.
	Groups []alike
	Single []singleReview
	Cut    int
	// Done, NotDone and NotKnown are what became of the reviews that a form decided.
	Done              []string
	NotDone, NotKnown []notDecided
}

// Here names the page, for the navigation.
func (reviewsView) Here() string { return "" }

// alike are reviews with the same reason, after requests of the same shapes that count.
type alike struct {
	Key, Reason string
	Kinds       []kind // at most maxKinds; KindsCut is how many more there are
	KindsCut    int
	Rows        []alikeRow
	Total, Cut  int
	// May is how many of the rows the user may decide, and SelectAll the link that selects them.
	May       int
	SelectAll string
}

// alikeRow is one of them. Value is what a form says of it: what the person saw.
type alikeRow struct {
	Profile, Worker, Task, Value string
	Since                        time.Time
	Against                      []string
	May, Selected                bool
}

// singleReview is one that is like no other, or that cannot be decided with others; then Why says why.
type singleReview struct{ Profile, Reason, Why string }

// notDecided is a review that a form did not decide.
type notDecided struct{ Profile, Why string }

// chosen are the reviews that are selected on the page: all of a group, or those whose values a form
// sent.
type chosen struct {
	group  string
	values []string
}

// waiting reads what is known of the reviews that the user may see, and how many more there are.
func (p *pages) waiting(ctx context.Context) (list []waitingReview, more int, err error) {
	ctx, cancel := context.WithTimeout(ctx, gatherTimeout)
	defer cancel()
	who := principal.Of(ctx)
	found, err := p.svc.ListProfiles(ctx, api.ProfileQuery{
		States: []lease.State{lease.ManualReview}, Sort: api.SortAttention, Limit: maxReviews, Visible: func(id string) bool { return who.May(principal.Evidence, id) },
	})
	if err != nil {
		return nil, 0, err
	}
	for _, r := range found.Items {
		one := waitingReview{record: r}
		switch one.inspection, err = p.svc.Inspection(ctx, r.ProfileID); {
		case err != nil:
			one.unread = "what its recovery found cannot be read: " + reason(err)
		case one.inspection.Decision == "":
			one.unread = "what its recovery found is not on this host"
		}
		list = append(list, one)
	}
	return list, found.Total - len(found.Items), nil
}

// alone says why a review cannot be decided with others; empty: it can.
func (w waitingReview) alone() string {
	switch {
	case w.unread != "":
		return w.unread
	case w.record.OtherHome != "":
		return "its home is contested"
	case w.record.RememberedBy != "":
		return "its home is only remembered"
	case w.inspection.ForeignLock != "":
		return "a browser of another host may have it"
	}
	return ""
}

// kinds are the shapes of its requests that count, whatever is known of them.
func (w waitingReview) kinds() []kind {
	return kindsThat(counts, w.inspection.UnsafeRequests, nil, nil)
}

// key is the same for reviews that are alike.
func (w waitingReview) key() string {
	var sent []string
	for _, k := range w.kinds() {
		what := k.Shape
		if what == "" {
			what = k.Method + " " + k.Address
		}
		sent = append(sent, k.Known+"\x00"+what)
	}
	slices.Sort(sent)
	sum := sha256.Sum256([]byte(w.record.Reason + "\x00" + strings.Join(sent, "\x00")))
	return "g" + hex.EncodeToString(sum[:6])
}

// toldByKinds tells whether the kinds of requests that the page names say all that a sentence about unsafe
// requests does: there were some, nothing was known of any, and the page names each.
func (w waitingReview) toldByKinds(o api.Objection) bool {
	if o.Fact != table.UnsafeRequests && o.Fact != table.UnsafeSinceSafe || o.Answer != string(table.Yes) {
		return false
	}
	n := 0
	for _, r := range w.inspection.UnsafeRequests {
		if counts(r) {
			if n++; !unknownKind(r) {
				return false
			}
		}
	}
	return n > 0 && n < findings.MaxListed && len(w.kinds()) <= maxKinds
}

// viewOfReviews puts those together that are alike: it is a pure function of what was found, of the user
// and of what they selected.
func viewOfReviews(list []waitingReview, more int, who principal.Principal, query string, selected chosen) reviewsView {
	v := reviewsView{Query: query, Who: who, Cut: more}
	groups := map[string]*alike{}
	byKey := map[string][]waitingReview{}
	for _, w := range list {
		if why := w.alone(); why != "" {
			v.Single = append(v.Single, singleReview{w.record.ProfileID, w.record.Reason, why})
			continue
		}
		key := w.key()
		if groups[key] == nil {
			kinds := w.kinds()
			groups[key] = &alike{Key: key, Reason: w.record.Reason, Kinds: kinds[:min(len(kinds), maxKinds)], KindsCut: max(0, len(kinds)-maxKinds)}
		}
		byKey[key] = append(byKey[key], w)
	}
	for key, all := range byKey {
		if len(all) == 1 {
			v.Single = append(v.Single, singleReview{Profile: all[0].record.ProfileID, Reason: all[0].record.Reason})
			continue
		}
		g := groups[key]
		g.Total, g.Cut = len(all), max(0, len(all)-maxTogether)
		for _, w := range all[:len(all)-g.Cut] {
			g.add(w, who, selected)
		}
		g.SelectAll = withSelected(query, key)
		v.Groups = append(v.Groups, *g)
	}
	slices.SortFunc(v.Groups, func(a, b alike) int { return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Key, b.Key)) })
	slices.SortFunc(v.Single, func(a, b singleReview) int { return cmp.Compare(a.Profile, b.Profile) })
	return v
}

func (g *alike) add(w waitingReview, who principal.Principal, selected chosen) {
	r := w.record
	row := alikeRow{
		Profile: r.ProfileID, Worker: r.OwnerWorkerID, Task: r.TaskID, Since: catalog.Since(r.Record), May: who.May(principal.Review, r.ProfileID),
		Value: fmt.Sprintf("%s %d %d %s", r.ProfileID, r.Token, r.Sequence, r.EvidenceID),
	}
	for _, o := range w.inspection.Against {
		if !w.toldByKinds(o) && len(row.Against) < maxAgainst {
			row.Against = append(row.Against, o.Sentence)
		}
	}
	if row.May {
		g.May++
		row.Selected = selected.group == g.Key || slices.Contains(selected.values, row.Value)
	}
	g.Rows = append(g.Rows, row)
}

// withSelected is the address of the page with all of a group selected.
func withSelected(query, key string) string {
	values, _ := url.ParseQuery(strings.TrimPrefix(query, "?")) // the page wrote it
	values.Set("select", key)
	return withQuery("/reviews", values) + "#" + key
}

// showReviews sends the page of alike reviews.
func (p *pages) showReviews(w http.ResponseWriter, r *http.Request) {
	p.sendReviews(w, r, http.StatusOK, chosen{group: r.URL.Query().Get("select")}, reviewsView{})
}

// sendReviews sends the page with what a form said, and what became of it.
func (p *pages) sendReviews(w http.ResponseWriter, r *http.Request, status int, selected chosen, after reviewsView) {
	list, more, err := p.waiting(r.Context())
	if err != nil {
		p.failList(w, r.URL.Query().Get("token"), err)
		return
	}
	v := viewOfReviews(list, more, principal.Of(r.Context()), tokenQuery(r), selected)
	v.Form, v.Problem, v.Done, v.NotDone, v.NotKnown = after.Form, after.Problem, after.Done, after.NotDone, after.NotKnown
	p.send(w, p.reviews, status, "reviews.html", v)
}

// decide takes in a person's decision on several reviews. Each is decided by itself, as the person saw
// it, and what is not decided is named.
func (p *pages) decide(w http.ResponseWriter, r *http.Request) {
	after := reviewsView{Form: filledIn(r)}
	values := slices.Compact(slices.Sorted(slices.Values(r.PostForm["review"])))
	switch err := named(after.Form.Reviewer); {
	case len(values) == 0:
		after.Problem = "Select the reviews that are to be decided."
	case len(values) > maxTogether:
		after.Problem = fmt.Sprintf("%d reviews are selected: want at most %d at a time.", len(values), maxTogether)
	case after.Form.Decision != lease.ReviewApprove && after.Form.Decision != lease.ReviewKeep:
		after.Problem = "Choose what is to happen: approve, or keep in review."
	case err != nil:
		after.Problem = "Not done: " + reason(err) + "."
	}
	if after.Problem != "" {
		p.sendReviews(w, r, http.StatusBadRequest, chosen{values: values}, after)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), decideTimeout)
	defer cancel()
	for _, value := range values {
		profile, req, err := reviewSeen(value)
		if err == nil {
			req.Decision, req.Reviewer, req.Note = after.Form.Decision, after.Form.Reviewer, after.Form.Note
			err = p.decideOne(ctx, profile, req)
		}
		switch {
		case err == nil:
			after.Done = append(after.Done, profile)
		case mayBeDone(err):
			after.NotKnown = append(after.NotKnown, notDecided{profile, reason(err)})
		default:
			after.NotDone = append(after.NotDone, notDecided{profile, reason(err)})
		}
	}
	status := http.StatusOK
	if len(after.NotDone)+len(after.NotKnown) > 0 {
		status = http.StatusConflict
	}
	p.sendReviews(w, r, status, chosen{}, after)
}

// reviewSeen reads what a form says of a review.
func reviewSeen(value string) (profile string, req api.ReviewRequest, err error) {
	fields := strings.Split(value, " ")
	if len(fields) != 4 {
		return fields[0], req, api.Invalid("review", "want profile, lease_token, sequence and evidence_id, as the page sends them")
	}
	token, badToken := strconv.ParseUint(fields[1], 10, 64)
	sequence, badSequence := strconv.ParseUint(fields[2], 10, 64)
	if badToken != nil || badSequence != nil || sequence == 0 {
		return fields[0], req, api.Invalid("review", "want numbers for lease_token and sequence, as the page sends them")
	}
	return fields[0], api.ReviewRequest{Write: api.Write{Token: lease.Token(token)}, Sequence: sequence, EvidenceID: fields[3]}, nil
}

// decideOne decides one of several reviews, if the user may.
func (p *pages) decideOne(ctx context.Context, profile string, req api.ReviewRequest) error {
	if who := principal.Of(ctx); !who.May(principal.Review, profile) {
		return api.Refuse(api.CodeForbidden, "%s", who.Refusal(principal.Review, short(profile)))
	}
	_, err := p.svc.Review(ctx, profile, req)
	if problem := (*api.Problem)(nil); err != nil && !errors.As(err, &problem) {
		p.log.Error().Err(err).Str("profile", profile).Msg("what a person decided was not done")
	}
	return err
}
