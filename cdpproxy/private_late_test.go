package cdpproxy

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"leasehold/internal/test/testchrome"
)

// asked is a command of the launcher.
type asked struct {
	ID     int64
	Method string
	Params struct{ URL, TargetID string }
	On     string `json:"sessionId"`
}

// pagesBrowser is a browser that has the targets of targets once the page at a URL was created. It
// does not answer Target.createTarget: say has it do that, or tell of something.
func pagesBrowser(t *testing.T, targets func(url string) string) (m *Mux, say func(format string, args ...any), creates chan asked, closes chan string) {
	m, commands, events := inherited(t)
	say = func(format string, args ...any) {
		if _, err := fmt.Fprintf(events, format+"\x00", args...); err != nil {
			t.Error(err)
		}
	}
	creates, closes = make(chan asked, 1), make(chan string, 1)
	go func() {
		url := ""
		for sessions := 0; ; {
			msg, err := commands.ReadBytes(0)
			var c asked
			if err != nil || json.Unmarshal(msg[:len(msg)-1], &c) != nil {
				return // the test ends
			}
			result := "{}"
			switch c.Method {
			case "Target.attachToBrowserTarget":
				sessions++
				result = fmt.Sprintf(`{"sessionId":"O%d"}`, sessions)
			case "Target.createTarget":
				url = c.Params.URL
				creates <- c
				continue
			case "Target.getTargets":
				result = `{"targetInfos":[` + targets(url) + `]}`
			case "Target.closeTarget":
				closes <- c.Params.TargetID
			}
			say(`{"id":%d,"result":%s,"sessionId":%q}`, c.ID, result, c.On)
		}
	}()
	return m, say, creates, closes
}

// owner is an observer who has pages of its own, and another one who is told of new targets. The context
// ends with the test, or when nothing is waited for any more.
func owner(t *testing.T, m *Mux) (patience context.Context, o, other *Observer) {
	t.Helper()
	patience, cancel := context.WithTimeout(t.Context(), testchrome.Patience)
	t.Cleanup(cancel)
	var err error
	if o, err = m.Observe(patience); err != nil {
		t.Fatal(err)
	}
	if other, err = m.Observe(patience, "Target.targetCreated"); err != nil {
		t.Fatal(err)
	}
	return patience, o, other
}

// TestAPrivatePageThatDoesNotStay: an extension closes it as it is opened. Nobody waits for it, and others are
// told of what happens.
func TestAPrivatePageThatDoesNotStay(t *testing.T) {
	m, say, creates, _ := pagesBrowser(t, func(string) string { return "" })
	patience, o, other := owner(t, m)
	result := make(chan error, 1)
	go func() {
		_, err := o.CreateHidden(patience)
		result <- err
	}()
	c := <-creates
	say(`{"id":%d,"result":{"targetId":"T"},"sessionId":%q}`, c.ID, c.On)
	if err := <-result; err == nil || patience.Err() != nil {
		t.Fatalf("a page that is closed: %v", err)
	}
	say(`{"method":"Target.targetCreated","params":{"targetInfo":{"targetId":"OWN","type":"page"}},"sessionId":"O2"}`)
	if _, err := other.Next(patience); err != nil {
		t.Errorf("others are told nothing: %v", err)
	}
}

// TestAPrivatePageThatComesLate: who wanted it waits no longer when Chrome opens the page. Nobody else is
// told of it all the same, and it is closed.
func TestAPrivatePageThatComesLate(t *testing.T) {
	m, say, creates, closes := pagesBrowser(t, func(url string) string {
		return `{"targetId":"T","type":"page"},{"targetId":"TAB","type":"tab","url":"` + url + `"}`
	})
	patience, o, other := owner(t, m)
	wanted, giveUp := context.WithCancel(patience)
	result := make(chan error, 1)
	go func() {
		_, err := o.CreateHidden(wanted)
		result <- err
	}()
	c := <-creates
	giveUp()
	if err := <-result; err == nil {
		t.Fatal("a page that is not there yet is given out")
	}
	for _, target := range []string{"T", "TAB"} {
		say(`{"method":"Target.targetCreated","params":{"targetInfo":{"targetId":%q,"type":"page"}},"sessionId":"O2"}`, target)
	}
	say(`{"id":%d,"result":{"targetId":"T"},"sessionId":%q}`, c.ID, c.On)
	say(`{"method":"Target.targetCreated","params":{"targetInfo":{"targetId":"OWN","type":"page"}},"sessionId":"O2"}`)
	for own := false; !own; {
		told, err := other.Next(patience)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range told {
			if own = strings.Contains(string(e.Params), `"OWN"`); !own {
				t.Errorf("others are told of %s", e.Params)
			}
		}
	}
	if t.Failed() {
		return
	}
	select {
	case target := <-closes:
		if target != "T" {
			t.Errorf("closed is %q", target)
		}
	case <-patience.Done():
		t.Error("the page stays open")
	}
}
