package api

import (
	"encoding/json"
	"time"
)

// Person is a human who has a session by hand: by taking it over from its worker, or by a
// hold.
type Person struct {
	// Name is what the person is called, as they said themselves. Principal is who they are,
	// as was proved.
	Name      string    `json:"name"`
	Principal string    `json:"principal"`
	Since     time.Time `json:"since"`
}

// TakeOver is a person's request to have a session whose worker keeps its lease.
type TakeOver struct {
	Write
	// Person is the person's name; empty: that of the principal.
	Person string `json:"person,omitempty"`
	Note   string `json:"note,omitempty"`
	// TakeFrom is the name of the person who has the session, from whom it is to be taken;
	// empty: it is refused while somebody else has it.
	TakeFrom string `json:"take_from,omitempty"`
}

// HandBack is a person's word that the worker of a session may go on.
type HandBack struct {
	Write
	Note string `json:"note,omitempty"`
	// Answered false says that what the worker asked for was not done; nil: it was.
	Answered *bool `json:"answered,omitempty"`
	// Data is what the worker that asked is told beside the note. Nothing else keeps it.
	Data json.RawMessage `json:"data,omitempty"`
}

// AskPerson is a worker's request for a person. It waits until one hands the session back,
// for Wait at most; zero means DefaultAsk.
type AskPerson struct {
	Write
	Reason string   `json:"reason"`
	Wait   Duration `json:"wait,omitempty"`
}

// How long a worker that asks for a person waits if it does not say, and at most.
const (
	DefaultAsk = 10 * time.Minute
	MaxAsk     = 12 * time.Hour
)

// Check returns an invalid_request problem if a field's value is not allowed.
func (a AskPerson) Check() error {
	switch {
	case a.Reason == "":
		return Invalid("reason", "want what the person is to do")
	case time.Duration(a.Wait) > MaxAsk:
		return Invalid("wait", "want at most %v", MaxAsk)
	}
	return nil
}

// Ask is a worker's request for a person that waits.
type Ask struct {
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	// Until is when the worker is told that nobody came.
	Until time.Time `json:"until"`
}

// Answer is what became of a worker's request for a person.
type Answer struct {
	Answered bool `json:"answered"`
	// Reason is why it was not answered: a person said so, or the time was over.
	Reason string `json:"reason,omitempty"`
	// By and Principal are the person who handed the session back, as in Person.
	By        string          `json:"by,omitempty"`
	Principal string          `json:"principal,omitempty"`
	Note      string          `json:"note,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
}

// The values of Answer.Reason.
const (
	// AskDeclined says that a person handed the session back, and that what was asked for is
	// not done.
	AskDeclined = "declined"
	// AskWaitOver says that nobody answered in time.
	AskWaitOver = "wait_over"
)
