package accountcheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
	"leasehold/evidence/capture"
	"leasehold/evidence/redact"
	"leasehold/launcher/browser"
	"leasehold/launcher/recovery/findings"
)

const (
	eventLifecycle = "Page.lifecycleEvent"
	eventDialog    = "Page.javascriptDialogOpening"
	eventResponse  = "Network.responseReceived"
)

// maxPages is how many pages are opened, at most.
const maxPages = 5

// rehearse opens pages of sites in a browser that is held to reading, one after the other, and finds
// out what each wants to send, and what it shows. Of those after the first maxPages that is not known. A
// page has come to rest when it has had no request under way for half a second; one that never does is
// taken as it is when its time is over.
func rehearse(ctx context.Context, b *browser.Browser, pages []site.Question, task findings.Task, said *reported) (answers []site.Answer) {
	if len(pages) == 0 {
		return nil
	}
	ctx, cancel := capture.Patience(ctx, askTimeout)
	defer cancel()
	o, err := b.Mux().Observe(ctx, eventLifecycle, eventDialog, eventResponse)
	if err == nil {
		defer release(o)
	}
	for i, q := range pages {
		a := opened{problem: fmt.Sprintf("the browser does not answer: %v", err)}
		said.begin()
		switch {
		case i >= maxPages:
			a.problem = fmt.Sprintf("it was not opened: at most %d pages are opened at a time", maxPages)
		case err == nil:
			one, cancel := capture.Patience(ctx, questionTimeout)
			a = open(one, o, q.URL)
			cancel()
			b.Monitor().HearAnswers(ctx)
		}
		answer, reported := a.judge(q), said.end()
		answer.Wanted = findings.Wanted(reported, task)
		if to := findings.LedToSignIn(reported, task); to != "" {
			answer.Opened, answer.State, answer.Picked, answer.How = false, site.NotTold, site.Picked{}, to
		}
		answers = append(answers, answer)
	}
	return answers
}

// opened is a page that was opened.
type opened struct {
	status  int
	there   bool   // its document is its own
	url     string // of its document, where it was sent elsewhere
	html    string // of its document, as its scripts made it
	problem string // why there is none; empty: there is
}

// open opens a page, and closes it again.
func open(ctx context.Context, o *cdpproxy.Observer, address string) (a opened) {
	p, err := newPage(ctx, o, false, []command{
		{"Page.enable", nil},
		{"Page.setLifecycleEventsEnabled", map[string]any{"enabled": true}},
		{"Network.enable", map[string]any{"maxTotalBufferSize": 1, "maxResourceBufferSize": 1}},
	})
	if err != nil {
		return opened{problem: fmt.Sprintf("no page could be opened: %v", err)}
	}
	defer p.close()
	var gone struct {
		LoaderID string `json:"loaderId"`
		Error    string `json:"errorText"`
	}
	if err := o.Call(ctx, p.session, "Page.navigate", map[string]string{"url": address}, &gone); err != nil {
		return opened{problem: fmt.Sprintf("it could not be opened in time: %v", err)}
	}
	a.status = p.rest(ctx, gone.LoaderID)
	switch { // Chrome shows a page of its own for an empty refusal
	case gone.Error != "" && a.status < http.StatusBadRequest:
		return opened{problem: "it could not be opened: " + gone.Error}
	case gone.Error != "":
		return a
	}
	a.there = a.status < http.StatusBadRequest
	// What it shows is read also of a page that does not come to rest.
	reading, cancel := capture.Patience(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	var root struct {
		Root struct {
			NodeID int    `json:"nodeId"`
			URL    string `json:"documentURL"`
		} `json:"root"`
	}
	var document struct {
		HTML string `json:"outerHTML"`
	}
	if err = o.Call(reading, p.session, "DOM.getDocument", map[string]int{"depth": 0}, &root); err == nil {
		err = o.Call(reading, p.session, "DOM.getOuterHTML", map[string]int{"nodeId": root.Root.NodeID}, &document)
	}
	switch a.url, a.html = root.Root.URL, document.HTML; {
	case err != nil:
		a.problem = fmt.Sprintf("what it shows could not be read: %v", err)
	case len(a.html) > maxAnswer:
		a.problem = fmt.Sprintf("its document is larger than %d bytes", maxAnswer)
	}
	return a
}

// rest waits until the document of a loader has come to rest, and returns the status with which it was
// answered; zero if that was not seen. Dialogs are dismissed.
func (p page) rest(ctx context.Context, loader string) (status int) {
	for {
		events, err := p.o.Next(ctx)
		if err != nil {
			return status
		}
		for _, e := range events {
			var m struct {
				Name     string `json:"name"`
				LoaderID string `json:"loaderId"`
				Type     string `json:"type"`
				FrameID  string `json:"frameId"`
				Response struct {
					Status int `json:"status"`
				} `json:"response"`
			}
			if e.Session != p.session || json.Unmarshal(e.Params, &m) != nil {
				continue
			}
			switch {
			case e.Method == eventDialog:
				p.o.Post(p.session, "Page.handleJavaScriptDialog", map[string]bool{"accept": false})
			case e.Method == eventResponse && m.Type == "Document" && m.FrameID == p.target:
				status = m.Response.Status
			case e.Method == eventLifecycle && m.Name == "networkIdle" && m.FrameID == p.target && m.LoaderID == loader:
				return status
			}
		}
	}
}

// judge tells what the page says to a question.
func (a opened) judge(q site.Question) site.Answer {
	answer := site.Answer{Question: q, State: site.NotHad, How: a.problem, Opened: a.there}
	if a.problem != "" {
		return answer
	}
	answer.How = fmt.Sprintf("%s was opened, and answered %d", redact.URL(q.URL), a.status)
	if at := redact.URL(a.url); a.url != "" && at != redact.URL(q.URL) {
		answer.How += ", at " + at
	}
	switch {
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden:
		answer.State = site.NotTold
	case a.status >= http.StatusBadRequest:
	default:
		var err error
		switch answer.Picked, err = q.Pick([]byte(a.html)); {
		case err == nil:
			answer.State = site.Told
		case errors.Is(err, site.ErrNoValue):
			answer.State = site.NotTold
			fallthrough
		default:
			answer.How += ": " + err.Error()
		}
	}
	return answer
}

// reported keeps what the pages of a browser report while a page is open, and passes all on.
type reported struct {
	to func(checkpoint.Entry) // nil: nobody else wants it

	mu   sync.Mutex
	open bool
	list []checkpoint.Entry
}

func (r *reported) take(e checkpoint.Entry) {
	if r.to != nil {
		r.to(e)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open {
		e.Seq = uint64(len(r.list) + 1)
		r.list = append(r.list, e)
	}
}

func (r *reported) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open, r.list = true, nil
}

func (r *reported) end() []checkpoint.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = false
	return r.list
}
