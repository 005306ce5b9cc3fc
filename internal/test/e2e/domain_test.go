package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"leasehold/internal/test/clients"
	"leasehold/lease"
)

// leaseDomainByName: chrome-remote-interface, which can send any method, offers those of the domain by
// name, since /json/protocol describes them. It sends them on the browser's session (TestEveryClient does
// so on a page's), in the order of the description, where release is the last.
func (s *sidecar) leaseDomainByName(t *testing.T, profile string, domain []described) {
	ses := s.open(t, profile, map[string]any{"dedicated_port": true, "wait": "60s"})
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
		if command.Name == "signIn" { // this sidecar has no secrets
			c.Send(t, call(command.Name, params))
			if line, err := c.Next(); err != nil || line.OK || !strings.Contains(line.Error, "--secrets") {
				t.Errorf("client.Lease.%s without secrets shows %+v, %v", command.Name, line, err)
			}
			continue
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
	if r := s.until(t, profile, lease.Available); r.LastKnownStep != "text" || r.LastSafeCheckpoint != "text" || r.Outcome != "text" || r.Reason != "text" {
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
			if len(d.Commands) == 0 || d.Commands[len(d.Commands)-1].Name != "release" {
				t.Errorf("commands: %+v", d.Commands)
			}
			return d.Commands
		}
	}
	t.Fatalf("no domain Lease among %d", len(protocol.Domains))
	return nil
}
