package methods

import (
	"strings"
	"time"
)

// Effect is what a command of a method changes. It decides whether the method's commands pass
// while a person has the session, and whether the browser may be handed on to the next task.
type Effect uint8

// The effects. The zero value is for a method for which nobody has decided it.
const (
	Undecided Effect = iota
	// Reads: it shows something, lets the client follow the pages, or takes back what the client
	// has set. Scripts count as reading, since nobody can tell one that reads from one that acts.
	// So does what the usual clients send to each new tab, or when they connect, if it changes
	// at most the looks of a page: without it they could not use the tab later.
	Reads
	// Sets: it sets something that Chrome undoes with the client's CDP session, or with the page.
	Sets
	// Stays: it sets something that the browser may keep until it ends.
	Stays
	// Acts: it acts on pages, on their requests, or on what they have stored.
	Acts
)

// Why is the reason for which commands with this effect are refused while a person has the
// session; empty if they pass.
func (e Effect) Why() string {
	return [...]string{"", "", "It changes how pages look, behave or are reached, as long as the client is connected.",
		"It changes the browser until that ends.", "It acts on pages, on their requests, or on what the account has stored."}[e]
}

// Drives tells whether commands of the method are refused while a person has the session. If
// two act at once, they undo each other's work, and what the journal attributes to the person
// has to be the person's. Only PassesWhileDriven knows the commands that pass all the same.
func (m *Method) Drives() bool { return m.Effect != Reads }

// PassesWhileDriven tells whether a command of a method that drives passes while a person has
// the session: one that lets a paused request go as it is, or that only makes a world for the
// client's own scripts.
func PassesWhileDriven(m *Method, params []byte) bool {
	var allowed []string
	switch m.Name {
	case "Fetch.continueRequest":
		allowed = []string{"requestId", "interceptResponse"}
	case "Fetch.continueResponse":
		allowed = []string{"requestId"}
	case "Fetch.continueWithAuth":
		allowed = []string{"requestId", "authChallengeResponse"}
	case "Page.addScriptToEvaluateOnNewDocument":
		allowed = []string{"source", "worldName", "includeCommandLineAPI", "runImmediately"}
	default:
		return false
	}
	p, bad := readParams(params)
	if bad != nil {
		return false
	}
	unknown := len(p.members)
	for _, name := range allowed {
		if _, given := p.members[name]; given {
			unknown--
		}
	}
	if unknown > 0 {
		return false
	}
	switch m.Name {
	case "Fetch.continueWithAuth":
		answer, bad := readParams(p.members["authChallengeResponse"])
		if bad != nil {
			return false
		}
		response, _ := answer.text("response")
		return len(answer.members) == 1 && response == "Default"
	case "Page.addScriptToEvaluateOnNewDocument":
		source, _ := p.text("source")
		return p.bad == nil && doesNothing(source)
	}
	return true
}

// doesNothing tells whether a script is empty, or one comment to the end of its only line.
func doesNothing(script string) bool {
	return script == "" || strings.HasPrefix(script, "//") && !strings.ContainsAny(script, "\n\r\u2028\u2029")
}

// RefusePerson is the refusal of a command that drives pages while the person of that name has
// the session.
func RefusePerson(name string, since time.Time) *Refusal {
	return &Refusal{
		Reason: ReasonPerson, Code: codeServer,
		Text: name + " has taken over the session since " + since.UTC().Format(time.RFC3339) +
			": input, navigation, settings, requests and writes are theirs until they hand it back; what only reads passes",
	}
}

// RefuseSignIn is the refusal of every command while the launcher signs the account in, but for the one that lets a
// target run that waits for its debugger.
func RefuseSignIn() *Refusal {
	return &Refusal{
		Reason: ReasonSignIn, Code: codeServer,
		Text: "the sidecar signs the account in: no command but Runtime.runIfWaitingForDebugger passes until Lease.signIn is answered",
	}
}
