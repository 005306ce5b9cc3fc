package look

import (
	"strings"
	"unicode"

	"leasehold/checkpoint"
)

// Field is a field of a page as a script can describe it.
type Field struct {
	Tag        string            `json:"tag"`
	Attributes map[string]string `json:"attributes"` // by name in lower case
	// Value is the content of the field, if that may be a number that tells what the field is
	// for. It is never reported.
	Value string `json:"value"`
	// Searches says that the field belongs to a search, see scene.searches.
	Searches bool `json:"searches"`
}

// Kind tells what the field is for.
func (f Field) Kind() checkpoint.Field {
	e := &element{tag: f.Tag, attrs: f.Attributes, value: f.Value}
	return e.kind(func() bool { return f.Searches })
}

func (s *scene) kindOf(i int) checkpoint.Field {
	return s.elements[i].kind(func() bool { return s.searches(i) })
}

// kind tells what a field is for: by the words of its autocomplete, by its type, and, for
// numbers of cards and bank accounts with correct check digits, by its content. among tells
// whether the field belongs to a search.
func (e *element) kind(among func() bool) checkpoint.Field {
	switch {
	case completes(e, "cc-") || isCardNumber(e.value):
		return checkpoint.FieldCard
	case isIBAN(e.value):
		return checkpoint.FieldBank
	case completes(e, "one-time-code"):
		return checkpoint.FieldCode
	case inputType(e) == "password" || completes(e, "current-password", "new-password"):
		return checkpoint.FieldPassword
	case inputType(e) == "file":
		return checkpoint.FieldFile
	case isSearch(e) || among():
		return checkpoint.FieldSearch
	case e.tag == "textarea" || e.tag != "input":
		return checkpoint.FieldMessage
	case inputType(e) == "email" || e.attr("inputmode") == "email" || completes(e, "email"):
		return checkpoint.FieldMail
	case completes(e, "street-address", "address-", "postal-code", "country", "country-name"):
		return checkpoint.FieldAddress
	case inputType(e) == "tel" || completes(e, "tel", "tel-"):
		return checkpoint.FieldPhone
	}
	return checkpoint.FieldText
}

func isSearch(e *element) bool {
	return inputType(e) == "search" || e.attr("role") == "searchbox" || e.attr("enterkeyhint") == "search"
}

// searches tells whether a field only asks for something to be shown: it is inside a search, or
// is the only field of a form that is sent by GET. The page monitor's typed.js has the same
// rule.
func (s *scene) searches(i int) bool {
	if isSearch(&s.elements[i]) {
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

// isCardNumber tells whether a text is the number of a payment card: 13 to 19 digits, with the
// last one correct by Luhn's rule.
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

// isIBAN tells whether a text is the number of a bank account, by its check digits (ISO 13616).
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
		last := i - (len(text) - 4) // position among the first four characters
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
	kind  checkpoint.Field
	// sure says that its content differs from the page's source. If it does not, the page
	// writes what is typed into its source, or nobody typed it.
	sure bool
}

// typed are the fields of a page, shown or reachable by scrolling, that have content, except
// those for searches.
func (s *scene) typed() (fields []typedField) {
	for i := range s.elements {
		e := &s.elements[i]
		file := inputType(e) == "file"
		if !file && (!e.shown || !isTextField(e) || !enabled(e)) {
			continue
		}
		if e.tag != "input" && e.tag != "textarea" { // an editable element, which has no value
			if s.measure(i, nil).text > 0 && !s.searches(i) {
				fields = append(fields, typedField{i, checkpoint.FieldMessage, false})
			}
			continue
		}
		if strings.TrimSpace(e.value) == "" {
			continue
		}
		if k := s.kindOf(i); k != checkpoint.FieldSearch {
			fields = append(fields, typedField{i, k, file || e.value != e.initial})
		}
	}
	return fields
}

// pressed tells whether the focused element is one that is pressed to send something.
func pressed(focus focus) bool {
	switch {
	case focus.Role != "":
		return focus.Role == "button"
	case focus.Tag == "input":
		return focus.Type == "submit" || focus.Type == "button" || focus.Type == "image"
	}
	return focus.Tag == "button"
}

// focus is the element that has a document's focus; empty: there is none.
type focus struct {
	Tag  string `json:"tag"`
	Type string `json:"type"`
	Role string `json:"role"`
}
