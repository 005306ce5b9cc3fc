package lease

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// characters take from one byte to six in JSON, or are replaced.
var characters = []string{"a", "&", "<", `"`, `\`, "\n", "\x00", "\x1f", "\x7f", "\xff", "é", "\u2028", "\ufffd", "😀"}

// hostile draws a text of one of the characters, or of many different ones.
func hostile(most int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		if rapid.Bool().Draw(t, "one character") {
			return strings.Repeat(rapid.SampledFrom(characters).Draw(t, "character"), rapid.SampledFrom([]int{0, 1, most / 2, most}).Draw(t, "times"))
		}
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom(characters), 0, 50).Draw(t, "characters"), "")
	})
}

// fill sets every text in v, whatever type that is, and every pointer. Lists of texts have some.
func fill(v reflect.Value, text func(name string) string, at time.Time) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(at))
			return
		}
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; v.Field(i).Kind() == reflect.String {
				v.Field(i).SetString(text(name))
			} else if name != "Outbox" && name != "Runs" && name != "LostRuns" && name != "Settings" {
				fill(v.Field(i), text, at)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text, at)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 100, 100))
		for i := range v.Len() {
			v.Index(i).SetString(text("Reasons"))
		}
	case reflect.Uint64, reflect.Int:
		v.Set(reflect.ValueOf(1 << 62).Convert(v.Type()))
	case reflect.Float64:
		v.SetFloat(1e7 / 3)
	}
}

// checked are the texts whose form or length is checked before they come into a record.
var checked = map[string]int{
	"ProfileID": 128, "LauncherID": 128, "Home": 128, "OtherHome": 128, "RememberedBy": 128, "To": 128, "From": 128, "BootID": 64,
	"ID": 128, "Directory": 16, "Nonce": 40, "State": 20, "AccountID": MaxName, "ProxyID": MaxName, "OldHome": 128, "Event": 32, "SignedIn": 8,
}

// full draws a record in which every text is as long as those that write it let it be, or longer
// where they do not look, with as many runs as there may be. It is held.
func full(t *rapid.T) Record {
	short, long := rapid.SampledFrom([]string{"a", `"`}).Draw(t, "character of what is checked"), hostile(3*MaxNote).Draw(t, "others")
	text := func(name string) string {
		if most, ok := checked[name]; ok {
			return strings.Repeat(short, most)
		}
		return long
	}
	at := time.Date(2026, 11, 26, 10, 11, 12, 123456789, time.UTC)
	var r Record
	fill(reflect.ValueOf(&r).Elem(), text, at)
	r.State, r.ProfileID = Held, strings.Repeat("p", 128)
	r.Token, r.HomeToken, r.Sequence = maxToken-1, 1, 1<<62
	r.Settings = Settings{MaxActiveRuns: MaxRuns, SensitiveWords: []string{strings.Repeat("w", MaxSettings-100)}}
	var run Run
	fill(reflect.ValueOf(&run).Elem(), text, at)
	for i := range MaxRuns {
		run.Token = r.Token - Token(i)
		r.Runs = append(r.Runs, run)
	}
	if lost := rapid.IntRange(0, MaxRuns-1).Draw(t, "lost"); lost > 0 {
		r.LostRuns, r.Runs = r.Runs[:lost], r.Runs[lost:]
	} else if rapid.Bool().Draw(t, "by hand, out of the review of all runs") {
		r.ByHand.Review.LostRuns, r.Runs = r.Runs, []Run{run}
	}
	return r
}

func encodedLength(t interface{ Fatal(...any) }, v any) int {
	b, err := Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return len(b)
}

// Whatever callers and pages have filled a record with, and however many events wait in its
// outbox: it fits, and so does what fences its holder, with all events of that.
func TestTheLargestRecordCanBeQuarantined(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := full(t)
		if waiting := rapid.IntRange(0, 1).Draw(t, "events wait"); waiting > 0 {
			for range 150 {
				before = before.emit(EventGranted, noon)
			}
		}
		held, _, err := before.Fit(MaxEncoded)
		if err != nil {
			t.Fatal(err)
		}
		if n := encodedLength(t, held); n > MaxEncoded {
			t.Fatalf("held, it takes %d bytes: want at most %d", n, MaxEncoded)
		}
		held.Outbox = nil // they were published
		suspected, err := held.Suspect("heartbeat_timeout", Sealed{}, noon)
		if err != nil {
			t.Fatal(err)
		}
		fenced, err := suspected.Quarantine(0, noon)
		if err != nil {
			t.Fatal(err)
		}
		stored, dropped, err := fenced.Fit(MaxEncoded)
		if err != nil {
			t.Fatal(err)
		}
		if n := encodedLength(t, stored); n > MaxEncoded || len(dropped) > 0 {
			t.Fatalf("quarantined, it takes %d bytes and leaves %d events out: want at most %d, and none", n, len(dropped), MaxEncoded)
		}
		if again, _, err := stored.Fit(MaxEncoded); err != nil || !reflect.DeepEqual(again, stored) {
			t.Fatalf("what fits is cut again: %v", err)
		}
	})
}

// A bucket of an earlier version takes less. There the oldest events leave, until the record fits.
func TestTheOldestEventsLeaveFirst(t *testing.T) {
	r := in(Held)
	for range 400 {
		r = r.emit(EventGranted, noon)
	}
	for _, limit := range []int{64 << 10, encodedLength(t, in(Held)) + 1000, 10} {
		got, dropped, err := r.Fit(limit)
		if err != nil {
			t.Fatal(err)
		}
		if n := encodedLength(t, got); n > limit && len(got.Outbox) > 0 {
			t.Errorf("limit %d: %d bytes", limit, n)
		}
		if all := slices.Concat(dropped, got.Outbox); !reflect.DeepEqual(all, r.Outbox) || len(dropped) == 0 {
			t.Errorf("limit %d: %d events left and %d are there, want all %d in their order", limit, len(dropped), len(got.Outbox), len(r.Outbox))
		}
	}
}

// An ampersand in the URL of a page takes one byte.
func TestWhatAPageChoosesDoesNotGrow(t *testing.T) {
	r := in(Held)
	r.LastKnownURL = "https://site.example/" + strings.Repeat("&", 1000) + "<>"
	b, err := Encode(r)
	if err != nil || !strings.Contains(string(b), `"`+r.LastKnownURL+`"`) {
		t.Errorf("%v: %s", err, b)
	}
}

func TestATextIsCutByWhatItTakesInJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := hostile(5000).Draw(t, "text")
		if got, want := encodedSize(s), encodedLength(t, s)-len(`""`); got != want {
			t.Fatalf("%q: %d bytes, want %d", s, got, want)
		}
		most := rapid.IntRange(0, 6000).Draw(t, "most")
		short := cut(s, most)
		if n := encodedSize(short); n > most || !strings.HasPrefix(s, short) || n+longestEscape <= most && short != s {
			t.Fatalf("%q cut to %d: %q, which takes %d", s, most, short, n)
		}
	})
}

// Where several tasks shared a browser, it is not known whose URL and step the record has.
func TestTheEventOfOneOfSeveralRunsHasNoURL(t *testing.T) {
	for name, tt := range map[string]struct {
		runs []Run
		url  string
	}{
		"alone":  {[]Run{{SessionID: "s7", Token: 7}}, "https://site.example/"},
		"of two": {[]Run{{SessionID: "s6", Token: 6}, {SessionID: "s7", Token: 7}}, ""},
	} {
		r := in(SuspectedStale)
		r.Runs, r.LastKnownURL, r.LastKnownStep, r.Reasons = tt.runs, "https://site.example/", "pay", []string{"why"}
		r, err := r.Quarantine(0, noon)
		if err != nil {
			t.Fatal(err)
		}
		if first := r.Outbox[0]; first.LastKnownURL == "" || first.LastKnownStep == "" || len(first.Reasons) == 0 {
			t.Errorf("%s: the profile's own event: %+v", name, first)
		}
		for _, e := range r.Outbox[1:] {
			if e.LastKnownURL != tt.url || (e.LastKnownStep == "") != (tt.url == "") || (e.Reasons == nil) != (tt.url == "") {
				t.Errorf("%s: %s of %s has %q, %q, %q", name, e.Event, e.SessionID, e.LastKnownURL, e.LastKnownStep, e.Reasons)
			}
		}
	}
}

func TestReasonsThatDoNotFitAreCounted(t *testing.T) {
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprint(i, strings.Repeat("x", 500)))
	}
	got := reasons(many)
	b, err := json.Marshal(got)
	if err != nil || len(b) > maxReasons || len(got) < 10 || got[len(got)-1] != fmt.Sprintf("and %d more", 100-(len(got)-1)) {
		t.Errorf("%v: %d reasons in %d bytes, the last is %q", err, len(got), len(b), got[len(got)-1])
	}
	if few := many[:3]; !slices.Equal(reasons(few), few) {
		t.Errorf("%q", reasons(few))
	}
}
