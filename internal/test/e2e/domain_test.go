package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"leasehold/internal/test/clients"
	"leasehold/lease"
)

// badParameters has wrong parameters by method, with the name of the field that the
// refusal has to contain.
var badParameters = map[string][]struct {
	params any
	field  string
}{
	"Lease.getLease": {
		{map[string]any{"verbose": true}, "verbose"},
	},
	"Lease.heartbeat": {
		{map[string]any{"step": 5}, "step"},
		{map[string]any{"stage": "x"}, "stage"},
		{map[string]any{"step": tooLong}, "step"},
	},
	"Lease.step": {
		{nil, "name"},
		{map[string]any{"action": "click"}, "name"},
		{map[string]any{"name": ""}, "name"},
		{map[string]any{"name": true}, "name"},
		{map[string]any{"name": "s", "action": []int{1}}, "action"},
		{map[string]any{"name": "s", "sensitive": "yes"}, "sensitive"},
		{map[string]any{"name": "s", "colour": "red"}, "colour"},
		{map[string]any{"name": tooLong}, "name"},
	},
	"Lease.checkpoint": {
		{nil, "name"},
		{map[string]any{"name": 1}, "name"},
		{map[string]any{"name": "c", "safe": 1}, "safe"},
		{map[string]any{"name": "c", "idempotent": "no"}, "idempotent"},
		{map[string]any{"name": "c", "saef": true}, "saef"},
		{map[string]any{"name": "c", "data": tooLong}, "data"},
	},
	"Lease.event": {
		{nil, "type"},
		{map[string]any{"type": map[string]any{}}, "type"},
		{map[string]any{"type": "t", "detail": 1}, "detail"},
		{map[string]any{"type": "t", "data": map[string]any{"rows": tooLong}}, "data"},
	},
	"Lease.askPerson": {
		{nil, "reason"},
		{map[string]any{"reason": ""}, "reason"},
		{map[string]any{"reason": 7}, "reason"},
		{map[string]any{"reason": "r", "wait": "soon"}, "wait"},
		{map[string]any{"reason": "r", "wait": "13h"}, "wait"},
		{map[string]any{"reason": "r", "person": "Ann"}, "person"},
	},
	"Lease.release": {
		{nil, "outcome"},
		{map[string]any{"reason": "done"}, "outcome"},
		{map[string]any{"outcome": 0}, "outcome"},
		{map[string]any{"outcome": "succeeded", "reason": 1}, "reason"},
		{map[string]any{"outcome": "succeeded", "force": true}, "force"},
		{map[string]any{"outcome": tooLong}, "outcome"},
	},
}

// tooLong is longer than a command of the domain may be.
var tooLong = strings.Repeat("x", 1<<20+1)

// TestLeaseDomain: on the browser's session and on a page's, wrong parameters are
// refused in Chrome's form, with the name of the field. Right ones are recorded.
func TestLeaseDomain(t *testing.T) {
	t.Parallel()
	s := start(t)
	ses := s.open(t, "domain", map[string]any{"dedicated_port": true})
	c := dial(t, ses.CDPURL)
	page, _ := c.page(t, "about:blank", "")
	for _, on := range []struct{ name, session string }{{"browser", ""}, {"page", page}} {
		t.Run(on.name, func(t *testing.T) {
			for method, cases := range badParameters {
				for _, tt := range cases {
					shown, _ := json.Marshal(tt.params)
					shown = shown[:min(len(shown), 80)]
					err := c.fails(t, on.session, method, tt.params)
					if err.Code != -32602 || !strings.HasPrefix(err.Message, "Invalid parameters") || !strings.Contains(err.Message, tt.field) {
						t.Errorf("%s %s: %+v, want -32602 that names %s", method, shown, err, tt.field)
					}
				}
				if err := c.fails(t, on.session, method, []int{1}); err.Code > -32600 {
					t.Errorf("%s of an array: %+v", method, err)
				}
			}
			if err := c.fails(t, on.session, "Lease.take", nil); err.Code != -32601 || err.Message != "'Lease.take' wasn't found" {
				t.Errorf("an unknown method: %+v", err)
			}
			step := "from_the_" + on.name
			c.call(t, on.session, "Lease.step", map[string]any{"name": step, "action": "look", "sensitive": false}, nil)
			c.call(t, on.session, "Lease.event", map[string]any{"type": "seen", "data": map[string]any{"rows": 3}}, nil)
			c.call(t, on.session, "Lease.checkpoint", map[string]any{"name": step, "safe": true, "idempotent": true, "data": []int{1}}, nil)
			c.call(t, on.session, "Lease.heartbeat", nil, nil)
			var got struct {
				ProfileID string      `json:"profile_id"`
				Token     lease.Token `json:"lease_token"`
			}
			if c.call(t, on.session, "Lease.getLease", nil, &got); got.ProfileID != "domain" || uint64(got.Token) != ses.Token {
				t.Errorf("Lease.getLease: %+v", got)
			}
			eventually(t, "the record to show it", func() error {
				if r := s.record(t, "domain"); r.LastKnownStep != step || r.LastSafeCheckpoint != step {
					return fmt.Errorf("step %s, checkpoint %s", r.LastKnownStep, r.LastSafeCheckpoint)
				}
				return nil
			})
		})
	}
	t.Run("chrome-remote-interface", func(t *testing.T) { s.leaseDomainByName(t, ses) })
}

// leaseDomainByName: chrome-remote-interface, which can send any method, offers those of the domain by
// name, since /json/protocol describes them. It sends them on the browser's session (TestEveryClient does
// so on a page's), in the order of the description, where release is the last.
func (s *sidecar) leaseDomainByName(t *testing.T, ses twoStep) {
	domain := s.leaseDomain(t)
	c := clients.Start(t, clients.CRI, ses.hostPort(), clients.Interactive)
	c.Expect(t, "connect")
	call := func(command string, params map[string]any) clients.Action {
		return clients.Action{"action": "call", "domain": "Lease", "command": command, "params": params}
	}
	for _, command := range domain {
		c.Send(t, call(command.Name, map[string]any{"nothing": "of the kind"}))
		if line, err := c.Next(); err != nil || line.OK || !strings.Contains(line.Error, "nothing") {
			t.Errorf("client.Lease.%s with a wrong parameter shows %+v, %v", command.Name, line, err)
		}
		params := map[string]any{}
		for _, p := range command.Parameters {
			params[p.Name] = map[string]any{"string": "text", "boolean": true, "number": 0.1, "any": map[string]any{"n": 1}}[p.Type]
			if p.Name == "idempotent" {
				params[p.Name] = []string{"POST /votes"}
			}
			if len(p.Enum) > 0 {
				params[p.Name] = p.Enum[len(p.Enum)-1]
			}
		}
		var result map[string]any
		if err := json.Unmarshal(c.Do(t, call(command.Name, params)), &result); err != nil {
			t.Fatal(err)
		}
		for _, r := range command.Returns {
			if _, ok := result[r.Name]; !ok && !r.Optional {
				t.Errorf("client.Lease.%s: no %s in %v", command.Name, r.Name, result)
			}
			delete(result, r.Name)
		}
		if len(result) > 0 {
			t.Errorf("client.Lease.%s: %v is not described", command.Name, result)
		}
	}
	if r := s.until(t, "domain", lease.Available); r.LastKnownStep != "text" || r.LastSafeCheckpoint != "text" || r.Outcome != "text" || r.Reason != "text" {
		t.Errorf("%+v", r)
	}
}

// described is the description of a command in /json/protocol.
type described struct {
	Name                string
	Parameters, Returns []struct {
		Name, Type string
		Optional   bool
		Enum       []string
	}
}

// leaseDomain returns the commands of the Lease domain. The sidecar starts a browser
// for the first answer, which on a busy machine takes longer than
// chrome-remote-interface waits.
func (s *sidecar) leaseDomain(t *testing.T) []described {
	t.Helper()
	address := s.URL + "/profiles/any/json/protocol"
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var protocol struct {
		Domains []struct {
			Domain   string
			Commands []described
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&protocol); err != nil {
		t.Fatalf("%s: %s %v", address, resp.Status, err)
	}
	for _, d := range protocol.Domains {
		if d.Domain == "Lease" {
			if len(d.Commands) != len(badParameters) || d.Commands[len(d.Commands)-1].Name != "release" {
				t.Errorf("commands: %+v", d.Commands)
			}
			return d.Commands
		}
	}
	t.Fatalf("no domain Lease among %d", len(protocol.Domains))
	return nil
}
