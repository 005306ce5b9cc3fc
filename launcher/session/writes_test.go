package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// begun is a room with a session whose token is 7.
func begun(t *testing.T, m api.Manifest) (*room, *Session) {
	t.Helper()
	r := newRoom(t, roomOptions{})
	r.memory.Do(func() {
		e := r.memory.Records[profile]
		e.Record.Token = 6
		r.memory.Records[profile] = e
	})
	s := r.begin(m)
	if s.Token() != 7 {
		t.Fatalf("token %d, want 7", s.Token())
	}
	return r, s
}

// movedOn is the session's record after another launcher granted the profile again.
func (r *room) movedOn(token lease.Token) lease.Record {
	moved := r.record()
	moved.Token, moved.LauncherID, moved.SessionID = token, "other", "ses_other"
	moved.Runs = []lease.Run{{SessionID: "ses_other", Token: token}}
	return moved
}

func TestForWrite(t *testing.T) {
	t.Parallel()
	r, s := begun(t, task("one"))
	write := func(sessionID string, token lease.Token) (*Session, error) {
		return r.host.ForWrite(t.Context(), sessionID, token, "step")
	}
	// check writes, and compares the refusal, the token that it names as the current one,
	// and the events that there are after it.
	events, counted := 0, 0
	check := func(name, sessionID string, token lease.Token, code string, current lease.Token, reported bool) {
		t.Helper()
		got, err := write(sessionID, token)
		if code == "" {
			if got != s || err != nil {
				t.Errorf("%s: %v, %v", name, got, err)
			}
			return
		}
		var p *api.Problem
		if !errors.As(err, &p) || p.Code != code || got != nil || current > 0 && p.More["current_token"] != current {
			t.Errorf("%s: %v (%v), want %s with %d", name, err, got, code, current)
		}
		if reported {
			events++
			counted++
		}
		late := r.memory.Named(lease.EventLateWrite)
		if len(late) != events || r.counted("leasehold_late_writes_total") != float64(counted) {
			t.Errorf("%s: %d events, %v counted, want %d, %d", name, len(late), r.counted("leasehold_late_writes_total"), events, counted)
			return
		}
		if reported {
			e := late[events-1]
			if e.ProfileID != profile || e.SessionID != sessionID || e.Token != token || e.CurrentToken != current || e.Write != "step" || e.LauncherID != "l" || e.Reason != "stale_lease_token" {
				t.Errorf("%s: %+v", name, e)
			}
		}
	}
	check("the session's token", s.ID(), 7, "", 0, false)
	check("a higher token", s.ID(), 8, api.CodeStaleToken, 7, false)
	if r.announcer.WroteLate(s.ID()) {
		t.Error("a higher token counts as a late write")
	}
	check("a lower token", s.ID(), 6, api.CodeStaleToken, 7, true)
	counted++ // its event waits for the others of the minute
	check("a lower token again", s.ID(), 6, api.CodeStaleToken, 7, false)
	if !r.announcer.WroteLate(s.ID()) {
		t.Error("a lower token is no late write")
	}
	check("a session that nobody knows", "ses_none", 7, api.CodeUnknownSession, 0, false)

	// The end has begun, and the fence is not shut yet.
	s.life.beginEnd(false)
	check("a session that ends", s.ID(), 7, api.CodeSessionEnded, 0, false)
	undoEnd(s)
	check("it goes on", s.ID(), 7, "", 0, false)

	if _, err := s.Release(t.Context(), api.Release{}); err != nil {
		t.Fatal(err)
	}
	check("a session that is over", s.ID(), 7, api.CodeSessionEnded, 0, false)
	r.memory.Do(func() { r.memory.Away = true })
	check("it cannot be known whether the profile moved on", s.ID(), 7, api.CodeSessionEnded, 0, false)
	r.memory.Do(func() { r.memory.Away = false })
	r.memory.Put(r.movedOn(9))
	check("the profile moved on", s.ID(), 7, api.CodeStaleToken, 9, true)
	check("a token that there was never", s.ID(), 9, api.CodeSessionEnded, 0, false)
}

// TestAWriteAfterTheFenceIsShut is refused although the session has not begun to end.
func TestAWriteAfterTheFenceIsShut(t *testing.T) {
	t.Parallel()
	r, s := begun(t, task("one"))
	w := r.connect(s)
	page := w.attach()
	r.memory.Put(r.movedOn(8))
	s.Fence().Shut(&lease.FencedError{Profile: profile, Token: 7, Current: 8})
	if _, err := r.host.ForWrite(t.Context(), s.ID(), 7, "step"); problem(err) != api.CodeStaleToken {
		t.Errorf("a write: %v", err)
	}
	if late := r.memory.Named(lease.EventLateWrite); len(late) != 1 || late[0].Write != "step" {
		t.Fatalf("reported: %+v", late)
	}
	if _, err := s.Connect(t.Context(), "", true); problem(err) != api.CodeSessionEnded {
		t.Errorf("a connection: %v", err)
	}
	// Commands reach nobody. The session is known for late writes by now.
	for range 3 {
		if m := w.call("Page.navigate", page, map[string]any{"url": "https://shop.example/"}); m.Error == nil || !strings.Contains(m.Error.Message, "superseded") {
			t.Errorf("a command: %+v", m)
		}
	}
	if slices.Contains(r.chromium.commands(), "Page.navigate "+page) || len(r.memory.Named(lease.EventLateWrite)) != 1 {
		t.Errorf("the browser got it, or it was announced again: %+v", r.memory.Named(lease.EventLateWrite))
	}
}

// TestALateCommandIsAnnouncedOnce a session, with the token that is valid now.
func TestALateCommandIsAnnouncedOnce(t *testing.T) {
	t.Parallel()
	r, s := begun(t, task("one"))
	w := r.connect(s)
	r.memory.Put(r.movedOn(8))
	s.Fence().Shut(lease.ErrExpired)
	for _, method := range []string{"Browser.getVersion", "Target.getTargets", "Target.getTargets"} {
		if m := w.call(method, "", nil); m.Error == nil {
			t.Errorf("%s was answered", method)
		}
	}
	want := func(n int, method string, token, current lease.Token) {
		t.Helper()
		r.await("the events", func() bool { return len(r.memory.Named(lease.EventLateWrite)) >= n })
		late := r.memory.Named(lease.EventLateWrite)
		if e := late[len(late)-1]; len(late) != n || e.Write != method || e.Token != token || e.CurrentToken != current || r.counted("leasehold_late_writes_total") != float64(n) {
			t.Errorf("announced: %+v", late)
		}
	}
	want(1, "Browser.getVersion", 7, 8)
	if !r.announcer.WroteLate(s.ID()) {
		t.Error("it is not known that the worker wrote late")
	}
	r.announcer.forget(s.ID())
	if r.announcer.WroteLate(s.ID()) {
		t.Error("not forgotten")
	}
	// Where the store cannot say which token is valid, the event names the session's own.
	r.memory.Do(func() { delete(r.memory.Records, profile) })
	r.announcer.LateCommand(t.Context(), profile, s.ID(), 7, "Page.reload")
	want(2, "Page.reload", 7, 7)
	// An event that cannot be published is no reason to let anything pass.
	r.memory.Do(func() { r.memory.Away = true })
	if p := r.announcer.Stale(t.Context(), profile, s.ID(), 6, 7, "step"); p.Code != api.CodeStaleToken || !strings.Contains(r.log.String(), "event is not known to be published") {
		t.Errorf("%v", p)
	}
	r.announcer.Conflict(t.Context(), task("two"), Conflict{})
	r.memory.Do(func() { r.memory.Away = false })
	r.announcer.Conflict(t.Context(), task("two"), Conflict{
		Holder: lease.Record{Token: 8, TaskID: "one", OwnerWorkerID: "v"}, Decision: "rescheduled", NextCheckSeconds: 30,
	})
	if c := r.memory.Named(lease.EventConflict); len(c) != 1 || c[0].BlockedTaskID != "two" || c[0].BlockedWorkerID != "w" || c[0].CurrentTaskID != "one" ||
		c[0].CurrentWorkerID != "v" || c[0].Token != 8 || c[0].Decision != "rescheduled" || c[0].NextCheckSeconds != 30 || c[0].LauncherID != "l" || c[0].At.IsZero() {
		t.Errorf("conflicts: %+v", c)
	}
	// The profile's record is back, for the end of the room.
	r.memory.Put(lease.Record{ProfileID: profile, State: lease.Available, Token: 9})
}

func TestTheLeaseDomain(t *testing.T) {
	t.Parallel()
	r, s := begun(t, task("one"))
	lower, higher := `"lease_token":6`, `"lease_token":8`
	big := strings.Repeat("x", maxParams)
	for _, tt := range []struct {
		method, params string
		code           int
		says           string // the error
		notes          string // what the journal gets
	}{
		{method: "Lease.heartbeat"},
		{method: "Lease.heartbeat", params: "null"},
		{method: "Lease.heartbeat", params: `{"step":"fill"}`, notes: "step fill"},
		{method: "Lease.heartbeat", params: `{"lease_token":7,"step":"pay"}`, notes: "step pay"},
		{method: "Lease.step", params: `{"name":"read","action":"click","sensitive":true}`, notes: "step read click sensitive"},
		{method: "Lease.step", params: `{}`, code: invalidParams, says: "Invalid parameters: name: want the step's name"},
		{method: "Lease.checkpoint", params: `{"name":"a"}`, notes: "checkpoint a safe"},
		{method: "Lease.checkpoint", params: `{"name":"b","safe":false}`, notes: "checkpoint b"},
		{method: "Lease.checkpoint", params: `{"name":"s","idempotent":["POST /votes"]}`, notes: `checkpoint s safe idempotent POST /votes`},
		{method: "Lease.checkpoint", params: `{"name":"s","idempotent":["/votes"]}`, code: invalidParams, says: "idempotent: \"/votes\": want METHOD PATH"},
		{method: "Lease.checkpoint", params: `{"name":"s","idempotent":["POST /graphql operation={}"]}`, code: invalidParams, says: "{} stands for many operations"},
		{method: "Lease.checkpoint", params: `{"name":"s","idempotent":"yes"}`, code: invalidParams, says: "idempotent"},
		{method: "Lease.checkpoint", params: `{"name":"c","idempotent":true,"data":{"n":1}}`, notes: `checkpoint c safe idempotent {"n":1}`},
		{method: "Lease.checkpoint", code: invalidParams, says: "Invalid parameters: name: want the checkpoint's name"},
		{method: "Lease.event", params: `{"type":"bought","data":[1]}`, notes: "event bought [1]"},
		{method: "Lease.event", params: `{"data":1}`, code: invalidParams, says: "Invalid parameters: type: want the event's type"},
		{method: "Lease.release", params: `{"reason":"done"}`, code: invalidParams, says: "Invalid parameters: outcome: want how the task ended, such as succeeded or failed"},

		{method: "Lease.getLease", params: `{"x":1}`, code: invalidParams, says: "Invalid parameters: x: the Lease.getLease has no such field"},
		{method: "Lease.step", params: `{"name":1}`, code: invalidParams, says: "Invalid parameters: name: want a text, got number"},
		{method: "Lease.step", params: `[]`, code: invalidParams, says: "Invalid parameters: "},
		{method: "Lease.release", params: `{"outcom":"x"}`, code: invalidParams, says: "Invalid parameters: outcom: "},
		{method: "Lease.step", params: `{"name":"` + big + `"}`, code: invalidParams, says: fmt.Sprintf("Invalid parameters: name: the parameters have %d bytes, want at most %d", maxParams+11, maxParams)},
		{method: "Lease.event", params: `{"type":"t","data":"` + big + `"}`, code: invalidParams, says: "Invalid parameters: data: the parameters have "},
		{method: "Lease.event", params: `"` + big + `"`, code: invalidParams, says: "Invalid parameters: params: the parameters have "},
		{method: "Lease.own", code: unknownMethod, says: "'Lease.own' wasn't found"},
		{method: "Lease.own", params: `{"x":1}`, code: unknownMethod, says: "'Lease.own' wasn't found"},

		{method: "Lease.heartbeat", params: `{` + lower + `,"step":"late"}`, code: serverError, says: "heartbeat with token 6: the current token is 7"},
		{method: "Lease.step", params: `{` + lower + `,"name":"late"}`, code: serverError, says: "step with token 6: the current token is 7"},
		{method: "Lease.checkpoint", params: `{` + lower + `,"name":"late"}`, code: serverError, says: "checkpoint with token 6: the current token is 7"},
		{method: "Lease.event", params: `{` + lower + `,"type":"late"}`, code: serverError, says: "event with token 6: the current token is 7"},
		{method: "Lease.release", params: `{` + lower + `,"outcome":"late"}`, code: serverError, says: "release with token 6: the current token is 7"},
		{method: "Lease.step", params: `{` + higher + `,"name":"early"}`, code: serverError, says: "step with token 8: the current token is 7"},
		{method: "Lease.release", params: `{` + higher + `,"outcome":"early"}`, code: serverError, says: "release with token 8: the current token is 7"},
	} {
		name := fmt.Sprintf("%s %.60s", tt.method, tt.params)
		late := len(r.memory.Named(lease.EventLateWrite))
		before := len(s.recording.entries())
		result, err := leaseDomain{s}.Lease(t.Context(), tt.method, json.RawMessage(tt.params))
		if tt.code != 0 {
			if err == nil || err.Code != tt.code || !strings.Contains(err.Message, tt.says) || len(err.Message) > 2000 {
				t.Errorf("%s: %v, %.300v; want %d %s", name, result, err, tt.code, tt.says)
			}
		} else if err != nil || result != struct{}{} {
			t.Errorf("%s: %v, %v", name, result, err)
		}
		var notes []string
		for _, e := range s.recording.entries()[before:] {
			if e.Kind == checkpoint.KindPicture { // it comes by itself
				continue
			}
			note := string(e.Kind) + " " + e.Name + " " + e.Action
			for _, flag := range []struct {
				set  bool
				name string
			}{{e.Safe, " safe"}, {e.Idempotent, " idempotent"}, {e.Sensitive, " sensitive"}} {
				if flag.set {
					note += flag.name
				}
			}
			if e.Token != 7 || e.At.IsZero() {
				t.Errorf("%s: %+v", name, e)
			}
			notes = append(notes, strings.Join(strings.Fields(note+" "+strings.Join(e.IdempotentShapes, ",")+" "+string(e.Data)), " "))
		}
		if got := strings.Join(notes, ";"); got != tt.notes {
			t.Errorf("%s: the journal got %q, want %q", name, got, tt.notes)
		}
		announced := r.memory.Named(lease.EventLateWrite)[late:]
		if want := strings.Contains(tt.params, lower); (len(announced) == 1) != want || want && announced[0].Write != strings.TrimPrefix(tt.method, "Lease.") {
			t.Errorf("%s: announced %+v", name, announced)
		}
	}
	if s.life.isEnding() {
		t.Fatal("a release that was refused ends the session")
	}
	// What the lease's record shows of it is written with the next renewals.
	r.await("the record has the progress", func() bool {
		rec := r.record()
		return rec.LastKnownStep == "read" && rec.LastSafeCheckpoint == "c"
	})
}

func TestGetLease(t *testing.T) {
	t.Parallel()
	r, s := begun(t, task("one"))
	s.SetResume("fill", checkpoint.Entry{Name: "c"})
	w := r.connect(s)
	var got struct {
		SessionID  string      `json:"session_id"`
		ProfileID  string      `json:"profile_id"`
		Token      lease.Token `json:"lease_token"`
		WorkerID   string      `json:"worker_id"`
		TaskID     string      `json:"task_id"`
		ExpiresAt  time.Time   `json:"expires_at"`
		AcquiredAt time.Time   `json:"acquired_at"`
		Resume     *api.Resume `json:"resume"`
	}
	if err := json.Unmarshal(w.call("Lease.getLease", "", nil).Result, &got); err != nil {
		t.Fatal(err)
	}
	if got.SessionID != s.ID() || got.ProfileID != profile || got.Token != 7 || got.WorkerID != "w" || got.TaskID != "one" || got.Resume == nil || got.Resume.From != "fill" ||
		!got.ExpiresAt.After(time.Now()) || got.AcquiredAt.After(time.Now()) {
		t.Errorf("%+v", got)
	}
	shown := s.Show()
	if shown.State != api.SessionServing || shown.Connections != 1 || shown.Resume == nil || shown.Capability == "" {
		t.Errorf("%+v", shown)
	}
	s.Expiring(3 * time.Second)
	if m := <-w.Got; m.Method != "Lease.leaseExpiring" || string(m.Params) != `{"lease_token":7,"seconds":3}` {
		t.Errorf("%+v", m)
	}
}

// TestAReleaseIsAnsweredBeforeTheEnd, over a websocket; after it the session takes no
// writes.
func TestAReleaseIsAnsweredBeforeTheEnd(t *testing.T) {
	t.Parallel()
	_, s := begun(t, task("one"))
	result, refused := leaseDomain{s}.Lease(t.Context(), "Lease.release", json.RawMessage(`{"outcome":"succeeded","reason":"`+strings.Repeat("r", 9000)+`"}`))
	last, ok := result.(cdpproxy.Last)
	if refused != nil || !ok || last.Result != struct{}{} {
		t.Fatalf("%v, %v", result, refused)
	}
	if s.life.known().released != nil {
		t.Error("released before the answer")
	}
	last.Then()
	<-s.Done()
	f, _ := s.h.File(s.ID())
	if f.Outcome != "succeeded" || f.Reason != checkpoint.Clip(strings.Repeat("r", 9000)) || len(f.Reason) > 4096 {
		t.Errorf("%s, %d bytes of reason", f.Outcome, len(f.Reason))
	}
	if _, refused := (leaseDomain{s}).Lease(t.Context(), "Lease.step", json.RawMessage(`{"name":"late"}`)); refused == nil || refused.Code != serverError ||
		!strings.Contains(refused.Message, api.CodeSessionEnded) {
		t.Errorf("a step after the end: %v", refused)
	}
}

// TestAnEntryThatIsLost is said to the writer, and counts as something that nobody saw.
func TestAnEntryThatIsLost(t *testing.T) {
	t.Parallel()
	r, s := begun(t, task("one"))
	if err := s.Reports().Step(api.Step{Name: "read"}); err != nil {
		t.Fatal(err)
	}
	if s.file.get().Unseen {
		t.Error("unseen from the start")
	}
	if err := s.recording.close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Reports().Step(api.Step{Name: "buy"}); err == nil {
		t.Error("the step is said to be in the journal")
	}
	unseen := s.file.get().Unseen
	if !unseen || !strings.Contains(r.log.String(), "journal entry lost") {
		t.Errorf("unseen %v", unseen)
	}
}

// TestWhatTheJournalKeepsOfPages: URLs without their secrets, judged by what they were; of
// frames only the sensitive ones.
func TestWhatTheJournalKeepsOfPages(t *testing.T) {
	t.Parallel()
	r, s := begun(t, task("one", func(m *api.Manifest) { m.SensitiveURLs = []string{"https://shop.example/account*"} }))
	before := len(s.recording.entries())
	for _, e := range []checkpoint.Entry{
		{Kind: checkpoint.KindURL, URL: "https://shop.example/?token=hunter2"},
		{Kind: checkpoint.KindURL, URL: "https://shop.example/account"},
		{Kind: checkpoint.KindFrame, URL: "https://ads.example/", Text: "https://shop.example/"},
		{Kind: checkpoint.KindFrame, URL: "https://shop.example/account/card", Text: "https://shop.example/"},
	} {
		s.Note(e)
	}
	entries := s.recording.entries()[before:]
	if len(entries) != 3 || entries[0].Sensitive || !entries[1].Sensitive || entries[2].Kind != checkpoint.KindFrame || !entries[2].Sensitive || entries[2].Text != "" {
		t.Errorf("%+v", entries)
	}
	raw := fmt.Sprintf("%+v", entries)
	if strings.Contains(raw, "hunter2") {
		t.Error("a secret is in the journal")
	}
	if rec := s.Latest(r.record()); rec.LastKnownURL != "https://shop.example/account" || rec.HeartbeatAt.Before(s.life.known().startedAt.UTC()) {
		t.Errorf("%q, seen at %v", rec.LastKnownURL, rec.HeartbeatAt)
	}
}
