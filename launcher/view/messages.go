package view

import (
	"encoding/binary"
	"encoding/json"
	"strings"

	"leasehold/evidence/capture"
	"leasehold/evidence/redact"
	"leasehold/launcher/api"
)

// The messages of a view. docs/console.md describes them for people.

// The kinds of messages to a viewer of which only the newest counts, in the order in which they
// are sent.
const (
	kindSession = iota
	kindTabs
	kindEnded
	kinds
)

// sessionMessage says whose session it is, and what the task said about itself last.
type sessionMessage struct {
	Type       string `json:"type"` // "session"
	SessionID  string `json:"session_id"`
	ProfileID  string `json:"profile_id"`
	WorkerID   string `json:"worker_id"`
	TaskID     string `json:"task_id"`
	Token      uint64 `json:"lease_token"`
	State      string `json:"state"`
	ByHand     bool   `json:"by_hand"` // it is a hold, which has no worker
	Step       string `json:"step"`
	Checkpoint string `json:"checkpoint"`
	// Ask says what the worker waits for a person for; null: it does not wait.
	Ask *api.Ask `json:"ask"`
}

// forLink is the message for who has a sign-in link: what the worker does is not theirs to see.
func (m sessionMessage) forLink() any {
	return sessionMessage{Type: m.Type, SessionID: m.SessionID, ProfileID: m.ProfileID, State: m.State, ByHand: m.ByHand, Ask: m.Ask}
}

// tabsMessage lists the open pages in the order in which they were opened.
type tabsMessage struct {
	Type string   `json:"type"` // "tabs"
	Tabs []tabNow `json:"tabs"`
}

// tabNow is one open page. Its texts come from the page.
type tabNow struct {
	Target string `json:"target"`
	Title  string `json:"title"`
	URL    string `json:"url"` // as redact.URL leaves it
	// Used says that the worker used this page last.
	Used bool `json:"used"`
	// Hidden says that the page is behind another one, so that Chrome does not draw it. It is
	// known only for pages that are shown to viewers.
	Hidden  bool       `json:"hidden"`
	Crashed bool       `json:"crashed"`
	Dialog  *dialogNow `json:"dialog"`
}

type dialogNow struct {
	Kind    string `json:"kind"` // alert, confirm, prompt or beforeunload
	Message string `json:"message"`
	// Number tells it from all other dialogs of the browser; an answer names it.
	Number uint64 `json:"number"`
}

// showingMessage says which page the viewer sees: the one that it asked for or, if Follow is
// set, the one that the worker used last. Target is empty if no page is open.
type showingMessage struct {
	Type   string `json:"type"` // "showing"
	Target string `json:"target"`
	Follow bool   `json:"follow"`
}

// actionsMessage has what the worker does, oldest first. An action that was sent before is sent
// again when it is repeated. Missed is the number of actions for which the viewer was too slow.
type actionsMessage struct {
	Type    string   `json:"type"` // "actions"
	Actions []action `json:"actions"`
	Missed  uint64   `json:"missed"`
}

// personMessage says who has the session by hand; null: nobody, so its worker drives it. Yours
// says that it is this viewer, whose input is then accepted.
type personMessage struct {
	Type   string      `json:"type"` // "person"
	Person *api.Person `json:"person"`
	Yours  bool        `json:"yours"`
}

type endedMessage struct {
	Type string `json:"type"` // "ended"
	How  string `json:"how"`
}

// refusedMessage answers a message of the viewer that was not carried out.
type refusedMessage struct {
	Type string `json:"type"` // "refused"
	What string `json:"what"` // the type of that message
	Why  string `json:"why"`
}

type frame struct {
	head  frameHead
	image []byte // a JPEG
	wire  []byte // head and image, as they are sent to a viewer
}

// frameHead is the JSON before a picture. A binary message has the length of the JSON as two
// bytes, the higher one first, then the JSON, then the JPEG.
type frameHead struct {
	Target string `json:"target"`
	// Sequence rises with each picture of a watch.
	Sequence uint64 `json:"sequence"`
	// Width and Height are the size of the pictured area, in CSS pixels of a page that is not
	// zoomed. Scale is the page's zoom factor.
	Width  float64 `json:"width"`
	Height float64 `json:"height"`
	Scale  float64 `json:"scale"`
	// ScrollX and ScrollY are how far the page is scrolled, in CSS pixels.
	ScrollX float64 `json:"scroll_x"`
	ScrollY float64 `json:"scroll_y"`
	// At is when the browser drew it, in milliseconds since 1970.
	At float64 `json:"at"`
}

func newFrame(head frameHead, image []byte) *frame {
	text, _ := json.Marshal(head) // it consists of numbers and a target's id
	wire := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(text)+len(image)), uint16(len(text)))
	return &frame{head, image, append(append(wire, text...), image...)}
}

// Bounds of texts, in bytes.
const (
	maxTitle   = 300
	maxMessage = 1000
)

// tabsOf lists pages in the order of their first appearance. used is the target of the page
// that the worker used last; hidden are the targets that Chrome does not draw.
func tabsOf(order []string, pages []capture.Page, used string, hidden map[string]bool) []tabNow {
	byTarget := map[string]capture.Page{}
	for _, p := range pages {
		byTarget[p.TargetID] = p
	}
	tabs := []tabNow{}
	for _, target := range order {
		p := byTarget[target]
		tab := tabNow{
			Target: target, Title: redact.Clip(p.Title, maxTitle), URL: redact.Clip(redact.URL(p.URL), maxMessage),
			Used: target == used, Hidden: hidden[target], Crashed: p.Crashed,
		}
		if kind, message, ok := strings.Cut(p.Dialog, ": "); ok {
			tab.Dialog = &dialogNow{Kind: kind, Message: redact.Clip(message, maxMessage), Number: p.DialogNumber}
		}
		tabs = append(tabs, tab)
	}
	return tabs
}
