package look

import (
	"strings"
	"unicode"
)

// kind says what a field is for. What is typed into a field is never told, only its kind.
type kind string

// The kinds of fields. Secrets are what pays or signs in.
const (
	kindCard     kind = "a card's number or code"
	kindBank     kind = "a bank account"
	kindPassword kind = "a password"
	kindCode     kind = "a one-time code"
	kindSearch   kind = "a search"
	kindMessage  kind = "a longer text"
	kindMail     kind = "a mail address"
	kindPhone    kind = "a phone number"
	kindAddress  kind = "an address"
	kindFile     kind = "a file"
	kindText     kind = "a text"
)

func (k kind) secret() bool {
	return k == kindCard || k == kindBank || k == kindPassword || k == kindCode
}

// kindOf tells what a field is for: by the words of its autocomplete, its type, and, for numbers
// of cards and bank accounts, whose check digits are right, by what is in it.
func (s *scene) kindOf(i int) kind {
	e := &s.elements[i]
	switch {
	case completes(e, "cc-") || isCardNumber(e.value):
		return kindCard
	case isIBAN(e.value):
		return kindBank
	case completes(e, "one-time-code"):
		return kindCode
	case inputType(e) == "password" || completes(e, "current-password", "new-password"):
		return kindPassword
	case inputType(e) == "file":
		return kindFile
	case s.searches(i):
		return kindSearch
	case e.tag == "textarea" || e.tag != "input":
		return kindMessage
	case inputType(e) == "email" || e.attr("inputmode") == "email" || completes(e, "email"):
		return kindMail
	case completes(e, "street-address", "address-", "postal-code", "country", "country-name"):
		return kindAddress
	case inputType(e) == "tel" || completes(e, "tel", "tel-"):
		return kindPhone
	}
	return kindText
}

// searches tells whether a field only asks for something to be shown.
func (s *scene) searches(i int) bool {
	e := &s.elements[i]
	if inputType(e) == "search" || e.attr("role") == "searchbox" || e.attr("enterkeyhint") == "search" {
		return true
	}
	if s.up(i, func(e *element) bool { return e.tag == "search" || e.attr("role") == "search" }) >= 0 {
		return true
	}
	form := s.up(i, func(e *element) bool { return e.tag == "form" })
	if form < 0 || s.elements[form].attr("method") != "get" {
		return false
	}
	fields := 0
	s.each(form, func(_ int, e *element) {
		if isTextField(e) && e.shown {
			fields++
		}
	})
	return fields == 1
}

// isCardNumber tells whether a text is the number of a payment card: 13 to 19 digits, of
// which the last is right by Luhn's rule.
func isCardNumber(text string) bool {
	var digits []int
	for _, r := range text {
		switch {
		case r >= '0' && r <= '9':
			digits = append(digits, int(r-'0'))
		case r != ' ' && r != '-' && r != '\u00a0':
			return false
		}
	}
	if len(digits) < 13 || len(digits) > 19 || digits[0] == 0 {
		return false
	}
	sum := 0
	for i, d := range digits {
		if (len(digits)-i)%2 == 0 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}

// isIBAN tells whether a text is the number of a bank account, by its check digits (ISO
// 13616).
func isIBAN(text string) bool {
	text = strings.ToUpper(strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, text))
	if len(text) < 15 || len(text) > 34 {
		return false
	}
	rest := 0
	for i, r := range text[4:] + text[:4] {
		letter := r >= 'A' && r <= 'Z'
		last := i - (len(text) - 4) // the place among the first four
		switch {
		case r >= '0' && r <= '9' && last != 0 && last != 1:
			rest = (rest*10 + int(r-'0')) % 97
		case letter && last != 2 && last != 3:
			rest = (rest*100 + int(r-'A') + 10) % 97
		default:
			return false
		}
	}
	return rest == 1
}

// typedField is a field with something in it that a worker may have typed.
type typedField struct {
	index int
	kind  kind
	// sure says that what is in it differs from what the page's source has. Otherwise the
	// page writes what is typed into its source, or nobody typed it.
	sure bool
}

// typed are the fields of a page that show, or could be scrolled to, with something in
// them, but for searches.
func (s *scene) typed() (fields []typedField) {
	for i := range s.elements {
		e := &s.elements[i]
		file := inputType(e) == "file"
		if !file && (!e.shown || !isTextField(e) || !enabled(e)) {
			continue
		}
		if e.tag != "input" && e.tag != "textarea" { // something editable, which has no value
			if s.measure(i, nil).text > 0 && !s.searches(i) {
				fields = append(fields, typedField{i, kindMessage, false})
			}
			continue
		}
		if strings.TrimSpace(e.value) == "" {
			continue
		}
		if k := s.kindOf(i); k != kindSearch {
			fields = append(fields, typedField{i, k, file || e.value != e.initial})
		}
	}
	return fields
}

// pressed tells whether a focused element is one that is pressed to send something.
func pressed(focus focus) bool {
	switch {
	case focus.Role != "":
		return focus.Role == "button"
	case focus.Tag == "input":
		return focus.Type == "submit" || focus.Type == "button" || focus.Type == "image"
	}
	return focus.Tag == "button"
}

// focus is the element that has a document's focus; empty: none has.
type focus struct {
	Tag  string `json:"tag"`
	Type string `json:"type"`
	Role string `json:"role"`
}
