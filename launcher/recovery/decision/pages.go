package decision

import (
	"fmt"
	"slices"
)

// The questions about what the open pages showed when the worker was lost. Package look answers
// them, before anything is closed.
const (
	// PagesLookedAt is no if a page did not answer although it could have.
	PagesLookedAt = "pages_looked_at"
	// What the pages ask for that only a person may give. If the first thing that a session saw
	// was a sign-in form, that does not show that the task did anything to the account; so only
	// a form that came later decides (SignedOut).
	CodeAsked      = "code_asked_for"
	PasswordAsked  = "password_asked_for"
	SignedOut      = "signed_out_meanwhile"
	ChallengeShown = "challenge_shown"
	ConsentAsked   = "consent_asked_for"
	NoticeBlocks   = "notice_blocks_page"
	DialogWaits    = "dialog_waits_for_answer"
	HTTPAuthAsked  = "http_authentication_asked_for"
	// What was left unfinished in the pages.
	SecretUnsent   = "secret_input_unsent"
	InputUnsent    = "input_unsent"
	PressedUnsent  = "pressed_and_nothing_sent"
	WizardHalfDone = "wizard_half_done"
	WritesWaiting  = "writes_waiting_in_profile"
	OfflineOn      = "offline_emulation_on"
)

// PageQuestions are the questions about open pages.
var PageQuestions = []string{
	PagesLookedAt, CodeAsked, PasswordAsked, SignedOut, ChallengeShown, ConsentAsked, NoticeBlocks, DialogWaits, HTTPAuthAsked,
	SecretUnsent, InputUnsent, PressedUnsent, WizardHalfDone, WritesWaiting, OfflineOn,
}

// askingNothing are the conditions about open pages: they were looked at, they ask for nothing
// that a person has to give or decide, and nothing is left in them that would be sent later, or
// with which somebody was about to pay or sign in.
var askingNothing = []condition{
	{PagesLookedAt, notNo, "an open page did not show what it asks for"},
	{CodeAsked, notYes, "a page asks for a code"},
	{SignedOut, notYes, "a page came to ask for a password"},
	{ChallengeShown, notYes, "a page wants to know whether this is a person"},
	{ConsentAsked, notYes, "a page asks for a consent"},
	{NoticeBlocks, notYes, "a notice or a question stands in the page's place"},
	{DialogWaits, notYes, "a dialog waits for an answer"},
	{HTTPAuthAsked, notYes, "a site asks for a password by HTTP authentication"},
	{SecretUnsent, notYes, "a card number, a password or a code was typed and not sent"},
	{PressedUnsent, notYes, "a button was pressed on what was typed, and nothing was sent yet"},
	{WritesWaiting, notYes, "a write waits in the profile, to be sent later"},
	{OfflineOn, notYes, "the page was kept offline: what it has to send waits"},
}

// Pages merges the facts about open pages at the ends of one or more runs: the answer is yes if
// it is yes in any of them, else unknown if it is unknown in any of them or nobody looked.
func Pages(seen ...[]Fact) Inspection {
	var all Inspection
	for _, q := range PageQuestions {
		found := Fact{q, Unknown, "nobody looked at the pages"}
		known := false
		for _, facts := range seen {
			i := slices.IndexFunc(facts, func(f Fact) bool { return f.Name == q })
			if i >= 0 && (!known || weight(q, facts[i].Answer) > weight(q, found.Answer)) {
				found, known = facts[i], true
			}
		}
		all = append(all, found)
	}
	return all
}

// weight orders answers: the one that speaks most against letting the profile go has the
// greatest weight.
func weight(question string, a Answer) int {
	against := Yes
	if question == PagesLookedAt {
		against = No
	}
	switch a {
	case against:
		return 2
	case Unknown:
		return 1
	}
	return 0
}

// Seen is the fact for one of PageQuestions. hows say where the pages that were looked at
// showed it; blind, which pages could not be looked at.
func Seen(question string, hows, blind []string) Fact {
	switch {
	case len(hows) == 1:
		return Fact{question, Yes, hows[0]}
	case len(hows) > 1:
		return Fact{question, Yes, fmt.Sprintf("%s; and %d more", hows[0], len(hows)-1)}
	case len(blind) > 0:
		return Fact{question, Unknown, blind[0]}
	}
	return Fact{question, No, "no open page or frame does"}
}
