package signin

import (
	"fmt"
	"testing"
	"time"
)

// TestWhatIsDoneNext plays what is seen of pages, one after the other.
func TestWhatIsDoneNext(t *testing.T) {
	const own, other = "https://shop.example", "https://evil.example"
	both := map[field]bool{username: true, password: true}
	type look struct {
		after    time.Duration
		document string
		origin   string
		shown    map[field]bool
		want     string
	}
	for name, tt := range map[string]struct {
		totp  bool
		looks []look
	}{
		"one page, and a second factor": {true, []look{
			{0, "0", "null", nil, "wait"},
			{0, "1", own, both, "fill [username password]"},
			{time.Second, "1", own, both, "wait"},
			{time.Second, "2", own, map[field]bool{code: true}, "fill [code]"},
			{0, "3", own, nil, "wait"},
			{quiet, "3", own, nil, "done: the fields were filled"},
		}},
		"the password on a second page": {false, []look{
			{0, "1", own, map[field]bool{username: true}, "fill [username]"},
			{0, "2", own, map[field]bool{password: true}, "fill [password]"},
			{0, "3", own, nil, "wait"},
			{quiet, "3", own, nil, "done: the fields were filled"},
		}},
		"the password in the same document": {false, []look{
			{0, "1", own, map[field]bool{username: true}, "fill [username]"},
			{0, "1", own, both, "fill [password]"},
		}},
		"another site before anything was typed": {false, []look{
			{0, "1", own, nil, "wait"},
			{0, "2", other, both, "stop"},
		}},
		"another site after the user name": {false, []look{
			{0, "1", own, map[field]bool{username: true}, "fill [username]"},
			{0, "2", other, both, "stop"},
		}},
		"another site when it is done": {false, []look{
			{0, "1", own, both, "fill [username password]"},
			{0, "2", other, both, "done: the site went on to " + other},
		}},
		"a wrong password": {false, []look{
			{0, "1", own, both, "fill [username password]"},
			{0, "2", own, both, "done: the site asks for the username again"},
		}},
		"a code that the secret does not have": {false, []look{
			{0, "1", own, both, "fill [username password]"},
			{0, "2", own, map[field]bool{code: true}, "done: the site asks for the code, which the secret does not have"},
		}},
		"no answer": {false, []look{
			{0, "1", own, both, "fill [username password]"},
			{quiet, "1", own, both, "wait"},
			{unanswered, "1", own, both, "done: the fields were filled"},
		}},
		"a page without any field": {false, []look{
			{0, "1", own, nil, "wait"},
			{unanswered, "1", own, nil, "wait"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(0, 0)
			p := &progress{origin: own, given: map[field]string{}, has: map[field]bool{username: true, password: true, code: tt.totp}}
			for i, l := range tt.looks {
				now = now.Add(l.after)
				s := p.next(seen{at: now, document: l.document, origin: l.origin, shown: l.shown})
				got := "wait"
				switch {
				case s.stop != nil:
					got = "stop"
				case s.done != "":
					got = "done: " + s.done
				case len(s.fill) > 0:
					got = fmt.Sprintf("fill %v", s.fill)
					for _, f := range s.fill {
						p.filled(f, now)
					}
				}
				if got != l.want {
					t.Errorf("look %d: %s, want %s", i, got, l.want)
				}
			}
		})
	}
}
