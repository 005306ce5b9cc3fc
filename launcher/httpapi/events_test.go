package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// follower is a scripted api.EventFollower: it has these batches, and then nothing more.
type follower struct {
	mu      sync.Mutex
	batches []api.EventBatch
	endless bool // the last batch comes again and again
	closed  chan struct{}
}

func newFollower(batches ...api.EventBatch) *follower {
	return &follower{batches: batches, closed: make(chan struct{}, 100)}
}

// MarshalJSON lets a follower stand in the record of calls.
func (f *follower) MarshalJSON() ([]byte, error) { return []byte("{}"), nil }

func (f *follower) Next(ctx context.Context) (api.EventBatch, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.batches) > 0 {
		b := f.batches[0]
		if !f.endless && !b.Ended {
			f.batches = f.batches[1:]
		}
		return b, nil
	}
	<-ctx.Done()
	return api.EventBatch{}, ctx.Err()
}

func (f *follower) Close() { f.closed <- struct{}{} }

func published(sequence uint64, e lease.Event) lease.Published {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return lease.Published{Event: e, Data: b, Place: lease.Place{Sequence: sequence, Check: 10}}
}

// TestEventsAboutSitesAreForWhoeverMayRead, unless only some profiles or other kinds are asked for.
func TestEventsAboutSitesAreForWhoeverMayRead(t *testing.T) {
	e := lease.Event{Event: lease.EventSiteChanged, Site: "shop"}
	for _, tt := range []struct {
		filter eventFilter
		want   bool
	}{
		{eventFilter{}, true},
		{eventFilter{kinds: []string{"lease", "site"}}, true},
		{eventFilter{kinds: []string{"lease"}}, false},
		{eventFilter{profiles: principal.Patterns{"*"}}, false},
	} {
		if got := tt.filter.has(e); got != tt.want {
			t.Errorf("%+v: %v", tt.filter, got)
		}
	}
}

// TestEventStream: what a client reads, by its principal's profiles and by its query.
func TestEventStream(t *testing.T) {
	away := time.Date(2026, 11, 23, 1, 2, 3, 0, time.UTC)
	script := []api.EventBatch{
		{Through: lease.Place{Sequence: 3, Check: 10}},
		{Through: lease.Place{Sequence: 8}, Lost: lease.LostOldest, Events: []lease.Published{
			published(5, lease.Event{Event: "granted", ProfileID: "shop_1"}),
			published(6, lease.Event{Event: "quarantined", ProfileID: "bank_1"}),
			{Event: lease.Event{Event: "late_write", ProfileID: "shop_2"}, Data: []byte("{\"event\":\n\"late_write\"}\r\n"), Place: lease.Place{Sequence: 7}},
		}},
		{Through: lease.Place{Sequence: 8}, Store: &api.StoreNews{Away: away}},
		{Through: lease.Place{Sequence: 8}, Store: &api.StoreNews{}},
		{Through: lease.Place{Sequence: 9}, Lost: lease.LostStream, Ended: true},
	}
	granted := `{"event":"granted","profile_id":"shop_1","at":"0001-01-01T00:00:00Z"}`
	quarantined := strings.NewReplacer("granted", "quarantined", "shop", "bank").Replace(granted)
	const gap = `event: gap|data: {"detail":"events after the Last-Event-ID have left the stream: what follows begins with the oldest that is kept","reason":"left"}`
	const rest = `event: store|data: {"available":false,"detail":"the lease store cannot be read: events come when it can, none is lost by that","since":"2026-11-23T01:02:03Z"}||` +
		`event: store|data: {"available":true}||` +
		`event: gap|data: {"detail":"the Last-Event-ID is not one of the event stream that is there: what follows begins with the oldest event that is kept, and may have come before","reason":"stream_reset"}||` +
		`id: 9||event: end|data: {"detail":"the launcher ends: connect to the next one, with the Last-Event-ID","reason":"shutting_down"}||`
	f := serve(t, Options{Gate: people(t)}, nil)
	for _, tt := range []struct{ name, who, query, after, want string }{
		{"everything", "admin-match", "", "18446744073709551615", "id: 5-0000000a|data: " + granted + "||id: 7|data: " + `{"event":"late_write"}` + "||id: 8||"},
		{"the profiles of the principal", "viewer-other", "?last_event_id=3-0000000a", "3-0000000a", "id: 6-0000000a|data: " + quarantined + "||id: 8||"},
		{"one kind", "admin-match", "?kind=lease,recovery&last_event_id=0", "0", "id: 5-0000000a|data: " + granted + "||id: 8||"},
		{"profiles by pattern", "admin-match", "?profile=x&profile=shop_1,*_7", "18446744073709551615", "id: 5-0000000a|data: " + granted + "||id: 8||"},
		{"none", "admin-match", "?kind=person", "18446744073709551615", "id: 8||"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			following := newFollower(script...)
			f.mu.Lock()
			f.answers = map[string]any{"Events": following}
			f.mu.Unlock()
			r, body := f.request("GET", "/v1/events"+tt.query, "", "Authorization: Bearer token-of-"+tt.who)
			if got := r.Header.Get("Content-Type"); r.StatusCode != 200 || got != "text/event-stream; charset=utf-8" {
				t.Fatalf("%s %s %s", r.Status, got, body)
			}
			want := "retry: 2000||id: 3-0000000a||" + gap + "||" + tt.want + rest
			if got := strings.ReplaceAll(body, "\n", "|"); got != want {
				t.Errorf("the stream\n%s\nwant\n%s", got, want)
			}
			f.wantCalls("Events " + fmt.Sprintf("%q", tt.after))
			select {
			case <-following.closed:
			default:
				t.Error("the follower is not closed")
			}
		})
	}
	f.answers = map[string]any{"Events": newFollower(api.EventBatch{Ended: true})}
	if _, body := f.request("GET", "/v1/events?last_event_id=1", "", "Authorization: Bearer token-of-admin-match", "Last-Event-ID: 2"); !strings.Contains(body, "event: end") {
		t.Errorf("%s", body)
	}
	f.wantCalls(`Events "2"`) // the header goes before the query
	for query, field := range map[string]string{"?kind=leases": "kind", "?profile=a/b": "profile", "?last_event_id=x": "last_event_id", "?a=%zz": ""} {
		r, body := f.request("GET", "/v1/events"+query, "", "Authorization: Bearer token-of-admin-match")
		if p := problemOf(t, r, body); r.StatusCode != 400 || p.Field != field {
			t.Errorf("%s: %s %s, want 400 and field %q", query, r.Status, body, field)
		}
	}
	f.answers = map[string]any{"Events": api.Refuse(api.CodeTooManyStreams, "256 event streams are open")}
	if r, body := f.request("GET", "/v1/events", "", "Authorization: Bearer token-of-admin-match"); r.StatusCode != http.StatusTooManyRequests || problemOf(t, r, body).Code != "too_many_streams" {
		t.Errorf("%s %s", r.Status, body)
	}
}

// TestEventStreamOfAClientThatDoesNotRead is cut, and costs no more than what is in the
// sockets. One that leaves is noticed.
func TestEventStreamOfAClientThatDoesNotRead(t *testing.T) {
	before := sendTimeout
	sendTimeout = 300 * time.Millisecond
	back := sync.OnceFunc(func() { sendTimeout = before })
	defer back()
	endless := newFollower(api.EventBatch{Events: []lease.Published{published(1, lease.Event{Event: "granted", ProfileID: "p", Reason: strings.Repeat("x", 60000)})}})
	endless.endless = true
	quiet := newFollower()
	f := serve(t, Options{}, map[string]any{"Events": endless})
	silent := f.dial()
	if err := silent.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(silent, "GET /v1/events HTTP/1.1\r\nHost: %s\r\n\r\n", f.addr())
	<-endless.closed
	back()
	if !strings.Contains(f.log.String(), "an event stream was cut") {
		t.Errorf("the log does not say that a client was cut: %s", f.log)
	}
	f.mu.Lock()
	f.answers["Events"] = quiet
	f.mu.Unlock()
	leaves := f.dial()
	fmt.Fprintf(leaves, "GET /v1/events HTTP/1.1\r\nHost: %s\r\n\r\n", f.addr())
	if line, err := bufio.NewReader(leaves).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%s %v", line, err)
	}
	_ = leaves.Close()
	<-quiet.closed
}
