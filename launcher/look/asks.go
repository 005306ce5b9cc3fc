package look

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"leasehold/evidence/redact"
	"leasehold/launcher/recovery/table"
)

// finding is one thing that a page shows. covers says that it lies over what the page showed
// before.
type finding struct {
	question string
	how      string
	at       box // where it is; empty: nowhere on the page
	covers   bool
}

// asking finds out what a page asks for, from its structure alone: it reads no words, so a page
// may be in any language.
type asking struct {
	*scene
	used bool // somebody clicked or typed in the document
	over int  // the element that covers the page and cannot be closed; -1: none
	// optional is the element that covers the page and can be closed. It asks for nothing.
	optional int
	found    []finding
}

// asks returns what a page asks for. used says that somebody clicked or typed in its
// document.
func (s *scene) asks(used bool) []finding {
	a := &asking{scene: s, used: used, over: s.cover(), optional: -1}
	if a.over >= 0 && s.dismissible(a.over) {
		a.over, a.optional = -1, a.over
	}
	a.password()
	a.code()
	a.challenge()
	if len(a.found) == 0 && a.over >= 0 {
		a.notice()
	}
	if len(a.found) == 0 && a.over < 0 {
		a.question()
	}
	a.wizard()
	return a.found
}

func (a *asking) add(question string, i int, format string, args ...any) {
	e := &a.elements[i]
	a.found = append(a.found, finding{question, fmt.Sprintf(format, args...) + " on " + place(e.url), e.box, a.over >= 0})
}

// maxPlace is the greatest length, in bytes, of a URL in a finding.
const maxPlace = 200

func place(url string) string { return redact.Clip(redact.URL(url), maxPlace) }

// completes tells whether an element's autocomplete has one of the words. A word that ends with
// a hyphen matches every word that begins with it.
func completes(e *element, words ...string) bool {
	for _, have := range strings.Fields(e.attr("autocomplete")) {
		for _, want := range words {
			if have == want || strings.HasSuffix(want, "-") && strings.HasPrefix(have, want) {
				return true
			}
		}
	}
	return false
}

func (a *asking) fields(form int) (fields []int) {
	a.each(form, func(i int, e *element) {
		if e.shown && isTextField(e) && enabled(e) {
			fields = append(fields, i)
		}
	})
	return fields
}

// asked tells whether a field is at a place where a page asks for something: in what covers the
// page, or uncovered among its content.
func (a *asking) asked(i int) bool {
	e := &a.elements[i]
	switch {
	case !e.shown || !enabled(e) || !isTextField(e) || a.within(i, a.optional):
		return false
	case a.over >= 0:
		return a.within(i, a.over)
	}
	return !a.aside(i) && a.reachable(i)
}

func (a *asking) inPlace(form int) bool {
	return a.over >= 0 && (a.within(form, a.over) || a.within(a.over, form)) || a.bare(form)
}

// stripHeight is the height of a header, as a fraction of what is shown of a page.
const stripHeight = 0.12

// strip tells whether the fields of a form are in a line at the top of a page, above its
// content.
func (a *asking) strip(form int) bool {
	if a.over >= 0 {
		return false
	}
	var line box
	for _, i := range a.fields(form) {
		line = line.or(a.elements[i].box)
	}
	below := false
	a.each(-1, func(i int, e *element) {
		below = below || e.shown && e.box.y >= line.y+line.h && !a.within(i, form) && (e.text > 0 || isLink(e) || isButton(e))
	})
	return below && line.y+line.h <= stripHeight*a.view.h
}

// password finds a sign-in form: one with a password that is not a new one, or with only the
// name of an account. A form in a header, or beside other content, does not count.
func (a *asking) password() {
	for i := range a.elements {
		e := &a.elements[i]
		if !a.asked(i) || inputType(e) != "password" && !completes(e, "current-password", "username", "webauthn") || completes(e, "new-password", "one-time-code", "cc-") {
			continue
		}
		form := a.formOf(i)
		passwords, current, texts := 0, false, 0
		for _, j := range a.fields(form) {
			f := &a.elements[j]
			current = current || completes(f, "current-password")
			if texts++; inputType(f) == "password" {
				passwords++
			}
		}
		switch {
		case inputType(e) != "password" && passwords == 0 && texts > 1: // a form that also asks for other things
		case passwords > 1 && !current: // a form to choose or change a password
		case a.strip(form): // a form in a header
		case a.inPlace(form) || passwords == 1 && a.central(i):
			a.add(table.PasswordAsked, form, "a form to sign in stands in the page's place,")
			return
		}
	}
}

// The usual lengths of codes.
const (
	minCode = 4
	maxCode = 8
)

var digitsPattern = regexp.MustCompile(`^\^?(?:\\d|\[0-9\])(?:\{(\d+)(?:,\d+)?\}|[*+])\$?$`)

// code finds a field for a one-time code: a field that says so, several fields for one
// character each, or a field for a few digits on a page that asks for nothing else.
func (a *asking) code() {
	for i := range a.elements {
		e := &a.elements[i]
		if !a.asked(i) {
			continue
		}
		if completes(e, "one-time-code") {
			a.add(table.CodeAsked, i, "a field for a one-time code is")
			return
		}
		if completes(e, "cc-", "postal-code", "bday", "bday-", "tel", "tel-", "address-", "street-address", "transaction-", "current-password", "new-password") {
			continue
		}
		form := a.formOf(i)
		fields := a.fields(form)
		if single := a.singles(fields); single >= minCode && single <= maxCode && single == len(fields) {
			a.add(table.CodeAsked, form, "%d fields for one character each are", single)
			return
		}
		if n := codeLength(e); n >= minCode && n <= maxCode && len(fields) == 1 && a.inPlace(form) {
			a.add(table.CodeAsked, form, "a field for %d digits, and nothing else to fill in, is", n)
			return
		}
	}
}

func (a *asking) singles(fields []int) (n int) {
	for _, i := range fields {
		if a.elements[i].attr("maxlength") == "1" {
			n++
		}
	}
	return n
}

// codeLength is the number of digits that a field accepts; 0 if it accepts other things, too.
func codeLength(e *element) int {
	pattern := digitsPattern.FindStringSubmatch(strings.TrimSpace(e.attrs["pattern"]))
	digits := pattern != nil || inputType(e) == "tel" || inputType(e) == "number"
	switch e.attr("inputmode") {
	case "numeric", "decimal", "tel":
		digits = true
	}
	if !digits {
		return 0
	}
	n, err := strconv.Atoi(e.attr("maxlength"))
	if err != nil && pattern != nil {
		n, _ = strconv.Atoi(pattern[1])
	}
	return n
}

// Bounds of a challenge: how many controls and characters its frame has besides what is to be
// solved, and how small it may be, in CSS pixels.
const (
	challengeControls = 8
	challengeText     = 400
	challengePictures = 4
	challengeSide     = 40
)

// challenge finds a frame of another site in the page's foreground that has a box to tick or
// pictures to choose from, and nothing to type into. It counts if the page has no other
// purpose, or if a sign-in form waits for it.
func (a *asking) challenge() {
	for i := range a.elements {
		e := &a.elements[i]
		if e.tag != "iframe" && e.tag != "frame" || !e.shown || a.within(i, a.optional) || a.last[i] == i {
			continue
		}
		inner := &a.elements[i+1]
		switch {
		case inner.site == a.site || inner.site == "", e.box.w < challengeSide*a.scale || e.box.h < challengeSide*a.scale:
			continue
		case e.box.and(a.view).empty() || !a.reachable(i) || a.over >= 0 && !a.within(i, a.over) || a.aside(i):
			continue
		}
		c := a.measure(i+1, nil)
		if c.fields > 0 || c.players > 0 || c.links+c.buttons+c.others > challengeControls || c.text > challengeText || c.unchecked > 1 {
			continue
		}
		box := c.unchecked == 1
		puzzle := c.pictures >= challengePictures || c.pictures > 0 && c.links+c.buttons+c.others > 0 && c.checked == 0
		if !box && !puzzle {
			continue
		}
		waits := len(a.found) > 0 && a.within(i, a.formOf(i)) && a.elements[a.formOf(i)].tag == "form"
		alone := a.over < 0 && a.alone(i)
		if a.over >= 0 || waits || alone {
			a.add(table.ChallengeShown, i, "a frame of %s asks for proof that this is a person,", inner.site)
			return
		}
	}
}

// alone tells whether a page contains little more than one of its frames.
func (a *asking) alone(frame int) bool {
	c := a.measure(-1, func(i int, _ *element) bool { return a.within(i, frame) || a.aside(i) })
	return c.text <= challengeText && c.fields+c.others+c.unchecked == 0 && c.links+c.buttons <= challengeControls && c.items <= bareItems && c.players == 0 && c.frames <= 1
}

// Bounds of a notice: something larger is a view of an application.
const (
	noticeControls = 40
	noticeText     = 6000
)

// notice finds what covers the page and has to be answered: a consent, if there is something to
// choose or to agree to, or else a notice. A panel that asks for a mail address is neither. Nor
// is a form in a page that was used, since the use may have opened it.
func (a *asking) notice() {
	c := a.measure(a.over, nil)
	switch {
	case c.buttons+c.links == 0, c.controls() > noticeControls, c.text > noticeText, c.players > 0:
		return // it waits for nothing, or is no notice
	case c.fields > 0 && a.used, c.fields == 1 && c.buttons+c.links > 1 && a.address():
		return
	case c.fields > 0:
		a.add(table.NoticeBlocks, a.over, "a form with %d fields covers what is", c.fields)
	case c.unchecked+c.checked > 0 || c.frames > 0 || c.buttons > 1 && c.links > 0:
		a.add(table.ConsentAsked, a.over, "something to agree to or to choose from covers what is")
	default:
		a.add(table.NoticeBlocks, a.over, "a notice with %d buttons covers what is", c.buttons+c.links)
	}
}

// address tells whether the only field of what covers the page is for a mail address.
func (a *asking) address() bool {
	found := false
	a.each(a.over, func(_ int, e *element) {
		found = found || isTextField(e) && e.shown && (inputType(e) == "email" || e.attr("inputmode") == "email" || completes(e, "email"))
	})
	return found
}

// Bounds of a page that is a question.
const (
	questionText    = 600
	questionButtons = 3
	termsText       = 1500
	termsLinks      = 5
)

// question finds a page that was loaded, has not been used since, and consists only of a
// question with its answers as buttons, or of something to agree to.
func (a *asking) question() {
	if a.used || len(a.elements) == 0 {
		return
	}
	c := a.measure(-1, func(i int, _ *element) bool { return a.within(i, a.optional) })
	if c.fields+c.others+c.checked+c.items+c.pictures+c.frames+c.players > 0 {
		return
	}
	switch {
	case c.unchecked == 0 && c.links == 0 && c.asks && c.text <= questionText && c.buttons > 1 && c.buttons <= questionButtons:
		a.add(table.NoticeBlocks, 0, "a question with %d answers stands in the page's place,", c.buttons)
		a.found[len(a.found)-1].at = c.box
	case a.required() && c.unchecked <= questionButtons && c.text <= termsText && c.links <= termsLinks && c.buttons > 0 && c.buttons <= questionButtons:
		a.add(table.ConsentAsked, 0, "something to agree to stands in the page's place,")
		a.found[len(a.found)-1].at = c.box
	}
}

// required tells whether a box has to be ticked before the page goes on: it says so itself, or
// no button can be pressed yet.
func (a *asking) required() bool {
	box, must, pressable := false, false, false
	a.each(-1, func(_ int, e *element) {
		switch {
		case isCheckbox(e) && !isChecked(e) && !e.full.empty():
			box = true
			must = must || e.has("required") || e.attr("aria-required") == "true"
		case isButton(e) && e.shown:
			pressable = pressable || enabled(e)
		}
	})
	return box && (must || !pressable)
}

// wizard finds a page that says at which of its steps it is, if a worker has used it.
func (a *asking) wizard() {
	for i := range a.elements {
		if e := &a.elements[i]; a.used && e.shown && e.attr("aria-current") == "step" {
			a.add(table.WizardHalfDone, i, "a sheet of several steps is open")
			return
		}
	}
}
