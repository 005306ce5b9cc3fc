package monitor

import (
	"context"
	_ "embed" // for the script
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/launcher/recovery/decision"
)

//go:embed presses.js
var pressesScript string

// hiddenURL gives the launcher's scripts a URL that keeps clients from being told about them.
const hiddenURL = "\n//# sourceURL=" + cdpproxy.HiddenWorld

// GETJudge reports the GETs of pages that look like writes, or that nobody can judge. It asks
// the documents that wait in gets what was pressed, looks at what changed in them, and reports
// what gets finds by itself. It has no lock of its own. Its methods may be called concurrently.
type GETJudge struct {
	chrome      caller
	gets        *gets
	pages       *pages
	navigations *navigations
	typing      *typing
	harmless    *harmless
	sink        func(checkpoint.Entry)
}

func newGETJudge(chrome caller, g *gets, ps *pages, n *navigations, ty *typing, h *harmless, sink func(checkpoint.Entry)) *GETJudge {
	return &GETJudge{chrome: chrome, gets: g, pages: ps, navigations: n, typing: ty, harmless: h, sink: sink}
}

// watch makes every new document of a target note what is pressed in it, and report the
// fields that are typed into.
func (j *GETJudge) watch(session string) {
	j.chrome.Post(session, "Page.addScriptToEvaluateOnNewDocument", map[string]any{
		"source": pressesScript + typedScript + hiddenURL, "worldName": cdpproxy.HiddenWorld, "runImmediately": true,
	})
}

const (
	// lookTime is how long asking or looking at one document may take. A document that hangs
	// does not tell what was pressed in it.
	lookTime = 2 * time.Second
	// scriptTime is how long the script may run for that.
	scriptTime = 500 * time.Millisecond
	// answerTime is how long Judge waits for answers that have not come.
	answerTime = 2 * showTime
	// maxAnswer is the largest answer, in bytes, that is not considered as text to be read: the
	// values of such an answer are searched for in the page.
	maxAnswer = 2 << 10
	// maxKept is the largest answer, in bytes, that Chrome keeps for the launcher, which needs
	// it to tell whether a value may have come with it. maxAnswers is how much Chrome keeps for
	// one page.
	maxKept, maxAnswers = 32 << 10, 512 << 10
	// maxValue is the longest value that is searched for, in bytes.
	maxValue = 64
)

// lookAtPages asks and looks at documents when they are due, until the context ends.
func (j *GETJudge) lookAtPages(ctx context.Context) {
	defer func() {
		j.gets.stop()
		j.GiveUp()
	}()
	for {
		visits, lost, next := j.gets.take(time.Now())
		j.reportAll(lost)
		if len(visits) > 0 { // one document that hangs must not hold up the others
			var visiting sync.WaitGroup
			for _, v := range visits {
				visiting.Go(func() { j.visit(ctx, v) })
			}
			visiting.Wait()
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-timer:
		case <-j.gets.wake:
		case <-ctx.Done():
			return
		}
	}
}

// Judge returns when the GETs that wait for a look at their pages are judged, and those
// that are answered within a moment, or when the context ends. It is called when the pages may
// soon be gone. What is not judged by then can be judged later; see GiveUp.
func (j *GETJudge) Judge(ctx context.Context) {
	end := time.Now().Add(answerTime)
	bound := time.After(answerTime + 2*lookTime)
	for now := time.Now(); now.Before(end) && j.gets.underWay(now) || !j.gets.idle(now); now = time.Now() {
		select {
		case <-time.After(recheck):
		case <-bound:
			return
		case <-ctx.Done():
			return
		}
	}
}

// GiveUp reports the GETs that somebody caused and that are not judged yet as ones that
// nobody can judge, because their pages end, or are not watched any more.
func (j *GETJudge) GiveUp() {
	j.reportAll(j.gets.giveUpAll())
}

// giveUpAll gives up judging all requests.
func (g *gets) giveUpAll() []*getWrite {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.giveUp(notJudged, func(*asked) bool { return true })
}

// stop says that nobody asks pages any more.
func (g *gets) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
}

// visit asks one document, and looks at it. If the document does not even say what was pressed,
// it is not looked at.
func (j *GETJudge) visit(ctx context.Context, v *visit) {
	defer j.gets.visited()
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	if len(v.ask) > 0 {
		j.askWhatWasPressed(ctx, v)
	}
	if v.look != nil || v.notice != nil {
		j.reportAll(j.gets.looked(v, j.look(ctx, v)))
	}
}

// pressed is what the script says about what was pressed before a request.
type pressed struct {
	Name  string `json:"name"`
	Link  bool   `json:"link"`
	Field bool   `json:"field"`
}

// askWhatWasPressed asks a document what was pressed before its requests. Requests that
// followed from nothing, from a link or from a search only read. If the document does not
// answer, a look may still tell.
func (j *GETJudge) askWhatWasPressed(ctx context.Context, v *visit) {
	sent := []float64{}
	for _, a := range v.ask {
		sent = append(sent, a.sent)
	}
	arguments, err := json.Marshal(sent)
	if err != nil {
		return
	}
	var found []*pressed
	if inPage(ctx, j.chrome, v.session, v.frame, fmt.Sprintf("pressedBefore(%s)", arguments), &found) != nil || len(found) != len(v.ask) {
		return
	}
	j.gets.pressedBefore(v.ask, found)
}

// pressedBefore takes in what was pressed before each of some requests; nil: nothing.
func (g *gets) pressedBefore(list []*asked, found []*pressed) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, a := range list {
		switch p := found[i]; {
		case a.gone: // the answer would come from the next document, in which nobody has pressed anything
		case p == nil || p.Link || p.Field:
			a.mayWrite = false
		default:
			a.control, a.name = true, p.Name
		}
	}
}

// seenRequest is what the script says about one request: what was pressed before it, and what
// changed when its answer came.
type seenRequest struct {
	pressed
	Choice    bool `json:"choice"` // the control chooses what is shown
	Own       bool `json:"own"`
	Elsewhere bool `json:"elsewhere"` // something changed that no other answer can have brought
	Shared    bool `json:"shared"`    // something changed that another answer may have brought
	Told      bool `json:"told"`
	// Perhaps are the values that were found in what another answer may have brought.
	Perhaps []string `json:"perhaps"`
	// Missed says that more changed than the script remembers.
	Missed bool `json:"missed"`
}

// look judges the requests that wait for one document, and returns those that need another
// look: the ones that look like writes while the page has not had time to show the answer, and
// all of them after the first failed look.
func (j *GETJudge) look(ctx context.Context, v *visit) (again *visit) {
	again = &visit{session: v.session, frame: v.frame, look: &pageToLook{}}
	var waiting []*asked
	if v.look != nil {
		waiting = v.look.requests
	}
	type request struct {
		Sent   float64      `json:"sent"`
		Done   float64      `json:"done"`
		Others [][2]float64 `json:"others"` // when other answers came, and when they were complete; 0 if they are not
		Values []string     `json:"values"`
	}
	requests := []request{}
	for _, a := range waiting {
		r := request{Sent: a.sent, Done: a.head, Others: [][2]float64{}}
		if a.bytes <= maxAnswer {
			j.readAnswer(ctx, a)
		}
		r.Values, _, _ = a.values()
		for _, o := range j.gets.besides(a) {
			r.Others = append(r.Others, [2]float64{o.head, o.end})
		}
		requests = append(requests, r)
	}
	var page struct {
		Controls int            `json:"controls"`
		Letters  int            `json:"letters"`
		Opaque   bool           `json:"opaque"`
		Found    []*seenRequest `json:"found"`
	}
	arguments, err := json.Marshal(requests)
	if err == nil {
		err = inPage(ctx, j.chrome, v.session, v.frame, fmt.Sprintf("look(%s)", arguments), &page)
	}
	if err != nil || len(page.Found) != len(requests) {
		for a := range v.all() {
			j.reportAll(again.retry(a))
		}
		return again
	}
	now := time.Now()
	if d := v.notice; d != nil {
		switch notice := decision.IsNotice(d.get.Final, decision.Page{Controls: page.Controls, Letters: page.Letters}); {
		case now.Before(d.final) && page.Controls == 0, j.gets.isGone(d):
			again.notice = d
		case notice:
			j.report(&getWrite{asked: d, sign: decision.Notice})
		}
	}
	for i, a := range waiting {
		seen := page.Found[i]
		if seen == nil {
			if a.control || j.gets.isGone(a) { // the frame shows another document by now
				j.reportAll(again.retry(a))
			}
			continue
		}
		_, count, lost := a.values()
		p := &decision.Pressed{
			Link: seen.Link, Field: seen.Field, Choice: seen.Choice, Own: seen.Own, Elsewhere: decision.No, Opaque: page.Opaque, Values: count, Lost: lost, Told: decision.No,
		}
		switch {
		case seen.Elsewhere:
			p.Elsewhere = decision.Yes
		case seen.Shared || seen.Missed:
			p.Elsewhere = decision.Unknown
		}
		switch {
		case seen.Told || j.only(ctx, a, seen.Perhaps):
			p.Told = decision.Yes
		case len(seen.Perhaps) > 0 || seen.Missed:
			p.Told = decision.Unknown
		}
		a.get.Pressed, a.name = p, seen.Name
		a.control = !seen.Link && !seen.Field
		switch sign := a.get.Sign(); {
		case sign == "":
		case now.Before(a.final):
			again.look.requests = append(again.look.requests, a)
		case sign == decision.Unjudged:
			why := answersMixed
			switch {
			case lost:
				why = notRead
			case p.Told == decision.Yes:
				why = fewShown
			}
			j.report(&getWrite{asked: a, sign: sign, text: seen.Name, why: why})
		default:
			j.report(&getWrite{asked: a, sign: sign, text: seen.Name})
		}
	}
	return again
}

// inPage evaluates an expression in the script's world of a document.
func inPage(ctx context.Context, chrome caller, session, frame, expression string, result any) error {
	var world struct {
		ID int `json:"executionContextId"`
	}
	// The world exists already: this command only tells its id.
	params := map[string]any{"frameId": frame, "worldName": cdpproxy.HiddenWorld}
	if err := chrome.Call(ctx, session, "Page.createIsolatedWorld", params, &world); err != nil {
		return err
	}
	var r struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
	}
	params = map[string]any{
		"contextId": world.ID, "expression": expression + hiddenURL, "returnByValue": true, "awaitPromise": true, "silent": true, "timeout": scriptTime.Milliseconds(),
	}
	if err := chrome.Call(ctx, session, "Runtime.evaluate", params, &r); err != nil {
		return err
	}
	return json.Unmarshal(r.Result.Value, result)
}

// answerBody is the content of an answer.
type answerBody struct {
	texts []string // its texts and numbers, if it is small
	count int      // how many values it has in all; -1 if it is text to be read
	lost  bool     // it could not be fetched
	whole string   // in lower case; empty if it is longer than Chrome keeps
}

// values are the texts and numbers of a small answer, and how many values it has in all: -1 if
// it is meant to be read, because it has a list or markup or is long. lost says that the
// content is not known, or not yet. Nothing of it is kept.
func (a *asked) values() (texts []string, count int, lost bool) {
	switch {
	case a.unread, a.get.Status == 204, a.get.Status == 205:
		return []string{}, 0, false
	case a.bytes > maxAnswer:
		return []string{}, -1, false
	case a.body == nil:
		return []string{}, 0, true
	}
	return a.body.texts, a.body.count, a.body.lost
}

// evicted is what Chrome says of an answer that was too long to be kept.
const evicted = "evicted"

// readAnswer fetches an answer, unless that was done before. Only one goroutine at a time looks
// at it.
func (j *GETJudge) readAnswer(ctx context.Context, a *asked) {
	if a.body != nil || a.unread {
		return
	}
	b := &answerBody{texts: []string{}}
	var body struct {
		Body    string `json:"body"`
		Encoded bool   `json:"base64Encoded"`
	}
	err := j.chrome.Call(ctx, a.session, "Network.getResponseBody", map[string]string{"requestId": a.id}, &body)
	if err == nil && body.Encoded {
		var plain []byte
		plain, err = base64.StdEncoding.DecodeString(body.Body)
		body.Body = string(plain)
	}
	var refused *cdpproxy.Error
	switch {
	case errors.As(err, &refused) && strings.Contains(refused.Message, evicted):
		b.count = -1
	case err != nil:
		b.lost = true
	case len(body.Body) > maxAnswer:
		b.count, b.whole = -1, strings.ToLower(body.Body)
	default:
		b.texts, b.count = decision.ValuesOf(body.Body, maxValue)
		b.whole = strings.ToLower(body.Body)
	}
	j.gets.read(a, b)
}

// read takes in what an answer has.
func (g *gets) read(a *asked, b *answerBody) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a.body = b
}

// only tells whether any of the values came with the answer to a and with no other one that
// the page may have shown at the same time.
func (j *GETJudge) only(ctx context.Context, a *asked, values []string) bool {
	if len(values) == 0 {
		return false
	}
	var others []string
	for _, o := range j.gets.besides(a) {
		if o.empty {
			continue
		}
		if j.readAnswer(ctx, o.asked); o.body.whole == "" && (o.body.lost || o.body.count < 0) || strings.Contains(o.body.whole, `\u`) {
			return false // it may contain anything
		}
		others = append(others, o.body.whole)
	}
	return slices.ContainsFunc(values, func(v string) bool {
		return !slices.ContainsFunc(others, func(o string) bool { return strings.Contains(o, strings.ToLower(v)) })
	})
}

// reportAll reports GETs that look like writes, or that nobody can judge.
func (j *GETJudge) reportAll(list []*getWrite) {
	for _, w := range list {
		j.report(w)
	}
}

// report reports a GET that looks like a write, that nobody can judge, or that came after an
// action.
func (j *GETJudge) report(w *getWrite) {
	if w.sign == afterAction {
		j.sink(checkpoint.Entry{
			Kind: checkpoint.KindGetAfter, Method: "GET", URL: w.get.Asked, Target: j.pages.targetOn(w.session),
			Declared: j.harmless.declared(decision.Sent{Method: "GET", URL: w.get.Asked, Whole: true}),
		})
		return
	}
	if w.sign == decision.Unjudged && j.navigations.closing.Load() { // the launcher itself ends the pages, see Closing
		return
	}
	j.typing.reportAgain()
	page := j.pages.targetOn(w.session)
	entry := checkpoint.Entry{Kind: checkpoint.KindGetWrite, Method: "GET", URL: w.get.Asked, Name: string(w.sign), Target: page, Type: "Fetch"}
	if w.document {
		entry.Type = "Document"
	}
	if w.text != "" {
		entry.Text = "pressed: " + w.text
	}
	if w.why != "" {
		entry.Text = strings.TrimSuffix(w.why+"; "+entry.Text, "; ")
	}
	entry.Declared = j.harmless.declared(decision.Sent{Method: "GET", URL: w.get.Asked, Whole: true})
	j.sink(entry)
}
