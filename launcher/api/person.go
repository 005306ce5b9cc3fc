package api

import (
	"encoding/json"
	"time"
)

// Person is a human who has a session by hand: who took it over from its worker, or has a hold.
type Person struct {
	// Name is the name that the person gave. Principal is who they are, as was proved.
	Name      string    `json:"name"`
	Principal string    `json:"principal"`
	Since     time.Time `json:"since"`
}

// TakeOver is a person's request to take over a session whose worker keeps the lease.
type TakeOver struct {
	Write
	// Person is the person's name; empty: the principal's name.
	Person string `json:"person,omitempty"`
	Note   string `json:"note,omitempty"`
	// TakeFrom is the name of the person who has the session now, and from whom it is taken. If
	// it is empty, the request is refused while somebody else has the session.
	TakeFrom string `json:"take_from,omitempty"`
}

// HandBack is a person's statement that the worker of a session may go on.
type HandBack struct {
	Write
	Note string `json:"note,omitempty"`
	// Answered is false if what the worker asked for was not done; nil: it was done.
	Answered *bool `json:"answered,omitempty"`
	// AskID names the request that is answered. If it is empty, the one is that waited when the person took
	// the session over. Any other request goes on waiting: the person need not have read it.
	AskID string `json:"ask_id,omitempty"`
	// Data is passed to the worker that asked, together with the note. It is not kept anywhere
	// else.
	Data json.RawMessage `json:"data,omitempty"`
}

// AskPerson is a worker's request for a person. It waits until a person hands the session back,
// for Wait at most; zero means DefaultAsk.
type AskPerson struct {
	Write
	Reason string   `json:"reason"`
	Wait   Duration `json:"wait,omitempty"`
}

// How long a worker that asks for a person waits: by default, and at most.
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

// Ask is a waiting request of a worker for a person.
type Ask struct {
	// ID tells it from all other requests; an answer names it.
	ID     string    `json:"ask_id"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	// Until is when the worker is told that nobody came.
	Until time.Time `json:"until"`
}

// Answer is the result of a worker's request for a person.
type Answer struct {
	Answered bool `json:"answered"`
	// Reason is why the request was not answered: a person said so, or the time was over.
	Reason string `json:"reason,omitempty"`
	// By and Principal are the person who handed the session back, as in Person.
	By        string          `json:"by,omitempty"`
	Principal string          `json:"principal,omitempty"`
	Note      string          `json:"note,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
}

// The values of Answer.Reason.
const (
	// AskDeclined says that a person handed the session back, but did not do what was asked
	// for.
	AskDeclined = "declined"
	// AskWaitOver says that nobody answered in time.
	AskWaitOver = "wait_over"
)

// SignIn is a worker's request to have its profile's account signed in with a secret that it never gets.
type SignIn struct {
	Write
	// Site is the name of the site; empty: the one for which there is a secret.
	Site string `json:"site,omitempty"`
	// Wait is how long a person is waited for, where one has to do it; zero means DefaultAsk.
	Wait Duration `json:"wait,omitempty"`
}

// SignInAnswer says whether the account is signed in now, as its site says, and how that came.
type SignInAnswer struct {
	SignedIn string `json:"signedIn"` // as in lease.SignedIn
	Reason   string `json:"reason"`
}
