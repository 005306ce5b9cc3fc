package cdpproxy_test

import (
	"fmt"
	"strings"
	"testing"

	"leasehold/cdpproxy"
)

// TestClientsAreNotToldOfTheLaunchersWorld: a client that takes the last world of a frame
// for the page's own would run its scripts there.
func TestClientsAreNotToldOfTheLaunchersWorld(t *testing.T) {
	s := script(t)
	c := connect(t, s.mux, open(), &handler{})
	c.call("Target.attachToTarget", "", flat)
	const created = `{"method":"Runtime.executionContextCreated","params":{"context":{"id":%d,"origin":"","name":"%s","uniqueId":"1.%[1]d","auxData":{"isDefault":false,"type":"isolated","frameId":"F"}}},"sessionId":"B1-page"}`
	for id, name := range []string{"", cdpproxy.HiddenWorld, "__playwright_utility_world__", cdpproxy.HiddenWorld + "x"} {
		s.say(created, id, name)
	}
	for _, want := range []int{0, 2, 3} {
		event, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(event.Params), fmt.Sprintf(`"id":%d,`, want)) {
			t.Errorf("%s, want world %d", event.Params, want)
		}
	}
	c.works()
}
