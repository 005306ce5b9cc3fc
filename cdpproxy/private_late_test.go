package cdpproxy

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"leasehold/internal/test/testchrome"
)

// TestAPrivatePageThatComesLate: who wanted it waits no longer when Chrome opens the page. Nobody else is
// told of it all the same, and it is closed.
func TestAPrivatePageThatComesLate(t *testing.T) {
	m, commands, events := inherited(t)
	say := func(format string, args ...any) {
		if _, err := fmt.Fprintf(events, format+"\x00", args...); err != nil {
			t.Error(err)
		}
	}
	type asked struct {
		ID     int64
		Method string
		Params struct{ URL, TargetID string }
		On     string `json:"sessionId"`
	}
	creates, closes := make(chan asked, 1), make(chan string, 1)
	go func() {
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
				creates <- c
				continue
			case "Target.getTargets":
				result = `{"targetInfos":[{"targetId":"T","type":"page"},{"targetId":"TAB","type":"tab","url":"` + (<-creates).Params.URL + `"}]}`
			case "Target.closeTarget":
				closes <- c.Params.TargetID
			}
			say(`{"id":%d,"result":%s,"sessionId":%q}`, c.ID, result, c.On)
		}
	}()
	patience, cancel := context.WithTimeout(t.Context(), testchrome.Patience)
	defer cancel()
	o, err := m.Observe(patience)
	if err != nil {
		t.Fatal(err)
	}
	other, err := m.Observe(patience, "Target.targetCreated")
	if err != nil {
		t.Fatal(err)
	}
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
	creates <- c // for its URL
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
