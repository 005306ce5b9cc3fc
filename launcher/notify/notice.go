package notify

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// The notices that are no event of their own name. All others have their event's name.
const (
	// HostLost says that a launcher went silent while it held a profile, as another one saw it.
	HostLost = "host_lost"
	// EvidenceWaits says that evidence has waited too long for its store.
	EvidenceWaits = "evidence_waits"
	// Test is what doctor sends.
	Test = "test"
)

// usual are the notices that a webhook gets which names none: somebody has to do something.
var usual = []string{string(lease.ManualReview), lease.EventAsked, lease.EventSignedOut, lease.EventAnotherAccount, HostLost, EvidenceWaits}

// maxWords bounds words of others in a text, in characters.
const maxWords = 200

// Notice is what a person is told.
type Notice struct {
	Name string `json:"notice"`
	// ID is the same each time this notice is sent, also if its event was published again, on a
	// stream that was made anew.
	ID string `json:"id"`
	// Text is one sentence, and Link the page of the console that it is about.
	Text       string    `json:"text"`
	Link       string    `json:"link"`
	At         time.Time `json:"at"`
	ProfileID  string    `json:"profile_id,omitempty"`
	LauncherID string    `json:"launcher_id,omitempty"`
	// Event is the event as it was published; empty if there is none.
	Event json.RawMessage `json:"event,omitempty"`
}

// Of is the notice about an event. console is the URL of the console.
func Of(e lease.Published, console string) Notice {
	n := Notice{
		Name: e.Event.Event, ID: idOf(e), At: e.At, ProfileID: e.ProfileID, LauncherID: e.LauncherID, Event: e.Data,
		Link: page(console, "console/"+url.PathEscape(e.ProfileID)),
	}
	reason := words(e.Reason)
	switch {
	case e.Site != "":
		n.Link = page(console, "sites/"+url.PathEscape(e.Site))
		n.Text = fmt.Sprintf("What is known of site %s was %s by %s.", e.Site, map[bool]string{true: "removed", false: "changed"}[e.Event.Event == lease.EventSiteRemoved], words(e.Principal))
	case e.Event.Event == string(lease.ManualReview):
		n.Text = fmt.Sprintf("Profile %s waits for a person to decide (%s).", e.ProfileID, reason)
	case e.Event.Event == lease.EventAsked:
		n.Text = fmt.Sprintf("The worker of profile %s asks for a person, until %s: %s", e.ProfileID, e.Until.UTC().Format(time.RFC3339), reason)
	case e.Event.Event == string(lease.SuspectedStale) && e.Reason == api.ReasonObserved:
		n.Name = HostLost
		n.Text = fmt.Sprintf("Launcher %s went silent while it held profile %s.", e.LauncherID, e.ProfileID)
	case e.Event.Event == lease.EventSignedOut:
		n.Text = fmt.Sprintf("The account of profile %s is signed out (%s).", e.ProfileID, reason)
	case e.Event.Event == lease.EventAnotherAccount:
		n.Text = fmt.Sprintf("Profile %s is signed in with another account (%s).", e.ProfileID, reason)
	case reason != "":
		n.Text = fmt.Sprintf("Profile %s: %s (%s).", e.ProfileID, e.Event.Event, reason)
	default:
		n.Text = fmt.Sprintf("Profile %s: %s.", e.ProfileID, e.Event.Event)
	}
	return n
}

// idOf names an event by what stays the same of it. The number of a change is not enough: after a
// record went back, another change may get it. There is no dot in an id, which what is signed has
// behind it.
func idOf(e lease.Published) string {
	about := e.Data
	if e.Sequence != 0 {
		about = fmt.Appendf(nil, "%q %q %q %d", e.ProfileID, e.Event.Event, e.SessionID, e.At.UnixNano())
	}
	sum := sha256.Sum256(about)
	return fmt.Sprintf("%d-%d-%x", e.Token, e.Sequence, sum[:8])
}

// OfWaiting is the notice that evidence on a launcher's host has waited since a time.
func OfWaiting(launcher string, bundles int, since time.Time, console string) Notice {
	return Notice{
		Name: EvidenceWaits, ID: fmt.Sprintf("%s-%s-%d", EvidenceWaits, launcher, since.Unix()), At: since.UTC(), LauncherID: launcher, Link: page(console, "hosts"),
		Text: fmt.Sprintf("Evidence of launcher %s cannot be stored: %d bundles wait on its host's disk, the oldest since %s.", launcher, bundles, since.UTC().Format(time.RFC3339)),
	}
}

func page(console, path string) string { return strings.TrimSuffix(console, "/") + "/" + path }

// words are words of somebody else, such as a worker's reason: one line, bounded, and marked as
// such, so that nobody is called by a name in them and nothing becomes a link.
func words(text string) string {
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "`", "'")), " ")
	if cut := []rune(text); len(cut) > maxWords {
		text = string(cut[:maxWords]) + "..."
	}
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

func (n Notice) body(form string) ([]byte, error) {
	switch form {
	case FormText:
		// Slack takes these three for markup.
		text := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(n.Text)
		return json.Marshal(map[string]string{"text": text + "\n" + n.Link})
	case FormCard:
		// A TextRun takes no markdown. A TextBlock does, and a worker could make a link by it. What stands in
		// two braces can become a date in either.
		text := n.Text
		for strings.Contains(text, "{{") {
			text = strings.ReplaceAll(text, "{{", "{ {")
		}
		return json.Marshal(map[string]any{"type": "message", "attachments": []any{map[string]any{
			"contentType": "application/vnd.microsoft.card.adaptive",
			"content": map[string]any{
				"type": "AdaptiveCard", "version": "1.2", "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
				"body":    []any{map[string]any{"type": "RichTextBlock", "inlines": []any{map[string]any{"type": "TextRun", "text": text}}}},
				"actions": []any{map[string]any{"type": "Action.OpenUrl", "title": "Open the console", "url": n.Link}},
			},
		}}})
	}
	return json.Marshal(n)
}
