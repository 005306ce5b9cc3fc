package monitor

import (
	"context"
	_ "embed" // for the script
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/launcher/recovery/decision"
)

//go:embed presses.js
var pressesScript string

// hiddenURL gives the launcher's scripts a URL by which clients are not told of them.
const hiddenURL = "\n//# sourceURL=" + cdpproxy.HiddenWorld

// watchPresses has every new document of a target note what is pressed in it.
func (m *Monitor) watchPresses(session string) {
	m.observer.Post(session, "Page.addScriptToEvaluateOnNewDocument", map[string]any{
		"source": pressesScript + hiddenURL, "worldName": cdpproxy.HiddenWorld, "runImmediately": true,
	})
}

const (
	// lookTime is how long one document may take to be looked at. One that hangs tells
	// nothing of what was pressed in it.
	lookTime = 2 * time.Second
	// scriptTime is how long the script may run for that.
	scriptTime = 500 * time.Millisecond
	// maxAnswer is the size of an answer, with its headers, of which the values are
	// looked for in the page, in bytes. Chrome keeps no larger ones for the launcher.
	maxAnswer = 2 << 10
	// maxAnswers is how much of such answers Chrome keeps of one page.
	maxAnswers = 64 << 10
	// maxValue is how long a value may be that is looked for, in bytes.
	maxValue = 64
)

// lookAtPages looks at documents as they become due, until the context ends.
func (m *Monitor) lookAtPages(ctx context.Context) {
	for {
		next := m.lookAt(ctx, false)
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-timer:
		case <-m.gets.wake:
		case <-ctx.Done():
			return
		}
	}
}

// JudgeGETs judges the GETs that wait for their page to be looked at, and those whose answers
// come within a moment. It is for when the page may be gone soon. A page that does not
// answer in time tells nothing.
func (m *Monitor) JudgeGETs(ctx context.Context) {
	for end := time.Now().Add(2 * showTime); m.gets.underWay(time.Now()) && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(recheck)
	}
	m.lookAt(ctx, true)
}

// lookAt looks at the documents that are due, or at all that wait for it. next is when the
// next one is due; zero if none is.
func (m *Monitor) lookAt(ctx context.Context, all bool) (next time.Time) {
	select {
	case m.looking <- struct{}{}: // whoever needs all waits for those that are being looked at
	case <-ctx.Done():
		return time.Time{}
	}
	defer func() { <-m.looking }()
	looks, next := m.gets.take(time.Now(), all)
	for _, look := range looks {
		m.look(ctx, look)
	}
	return next
}

// seenRequest is what the script says of one request: what was pressed before it, and what
// changed when its answer came.
type seenRequest struct {
	Name      string `json:"name"`
	Link      bool   `json:"link"`
	Field     bool   `json:"field"`
	Own       bool   `json:"own"`
	Elsewhere bool   `json:"elsewhere"`
	Told      bool   `json:"told"`
}

// look judges what waits for one document.
func (m *Monitor) look(ctx context.Context, look *pageToLook) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	// The page shows an answer a moment after it has come.
	select {
	case <-time.After(min(showTime, time.Until(look.from))):
	case <-ctx.Done():
	}
	type request struct {
		Sent   float64  `json:"sent"`
		Done   float64  `json:"done"`
		Next   float64  `json:"next"`
		Values []string `json:"values"`
	}
	requests, counts := []request{}, make([]int, len(look.requests))
	for i, a := range look.requests {
		r := request{Sent: a.sent, Done: a.done, Next: m.gets.after(a), Values: []string{}}
		if counts[i] = -1; a.bytes >= 0 && a.bytes <= maxAnswer {
			r.Values, counts[i] = m.values(ctx, a)
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
	if err != nil || m.inPage(ctx, look.session, look.frame, fmt.Sprintf("look(%s)", arguments), &page) != nil {
		return
	}
	if d := look.document; d != nil && decision.IsNotice(d.get.Final, decision.Page{Controls: page.Controls, Letters: page.Letters}) {
		m.reportGet(&getWrite{asked: d, sign: decision.Notice})
	}
	for i, a := range look.requests {
		if i >= len(page.Found) || page.Found[i] == nil {
			continue
		}
		seen := page.Found[i]
		a.get.Pressed = &decision.Pressed{
			Link: seen.Link, Field: seen.Field, Own: seen.Own, Elsewhere: seen.Elsewhere, Opaque: page.Opaque, Values: counts[i], Told: seen.Told,
		}
		if sign := a.get.Sign(); sign != "" {
			m.reportGet(&getWrite{asked: a, sign: sign, text: seen.Name})
		}
	}
}

// inPage evaluates an expression in the script's world of a frame's document.
func (m *Monitor) inPage(ctx context.Context, session, frame, expression string, result any) error {
	var world struct {
		ID int `json:"executionContextId"`
	}
	// The world is there already, and this only tells its id.
	params := map[string]any{"frameId": frame, "worldName": cdpproxy.HiddenWorld}
	if err := m.observer.Call(ctx, session, "Page.createIsolatedWorld", params, &world); err != nil {
		return err
	}
	var r struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
	}
	params = map[string]any{"contextId": world.ID, "expression": expression + hiddenURL, "returnByValue": true, "silent": true, "timeout": scriptTime.Milliseconds()}
	if err := m.observer.Call(ctx, session, "Runtime.evaluate", params, &r); err != nil {
		return err
	}
	return json.Unmarshal(r.Result.Value, result)
}

// values are the texts and numbers of a small answer, and how many values it has in all.
// It has -1 if it is there to be read: it has a list, or markup. Neither is kept.
func (m *Monitor) values(ctx context.Context, a *asked) (texts []string, count int) {
	var body struct {
		Body    string `json:"body"`
		Encoded bool   `json:"base64Encoded"`
	}
	if a.unread || a.get.Status == 204 || a.get.Status == 205 {
		return []string{}, 0
	}
	if m.observer.Call(ctx, a.session, "Network.getResponseBody", map[string]string{"requestId": a.id}, &body) != nil {
		return []string{}, -1
	}
	if body.Encoded {
		plain, err := base64.StdEncoding.DecodeString(body.Body)
		if err != nil {
			return []string{}, -1
		}
		body.Body = string(plain)
	}
	return decision.ValuesOf(body.Body, maxValue)
}

// reportGet reports a GET that looks like a write.
func (m *Monitor) reportGet(w *getWrite) {
	m.mu.Lock()
	page := m.targetOf(w.session, m.pageOf(m.targets[w.session]))
	m.mu.Unlock()
	entry := checkpoint.Entry{Kind: checkpoint.KindGetWrite, Method: "GET", URL: w.get.Asked, Name: string(w.sign), Target: page, Type: "Fetch"}
	if w.document {
		entry.Type = "Document"
	}
	if w.text != "" {
		entry.Text = "pressed: " + w.text
	}
	if declared := m.harmless.Load(); declared != nil {
		entry.Declared = decision.Declared(*declared, decision.Sent{Method: "GET", URL: w.get.Asked, Whole: true})
	}
	m.sink(entry)
}
