package api

import "time"

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
}
