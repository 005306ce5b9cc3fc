package lease

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Labels are what a profile's owner says about it, as names and values, so that a task can be
// given any profile that has certain labels.
type Labels map[string]string

// maxLabels is how many labels a profile may have.
const maxLabels = 32

// The name and value of a label contain neither a colon nor a comma, which separate them in
// URLs. A value contains no "*", which stands for any characters when a task asks for labels.
var (
	labelName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$`)
	labelValue = regexp.MustCompile(`^[A-Za-z0-9._@/+-]{0,63}$`)
	labelAsked = regexp.MustCompile(`^[A-Za-z0-9._@/+*-]{0,63}$`)
)

// Check returns an error that says which label a profile cannot have, and what is allowed.
func (l Labels) Check() error { return l.check(labelValue, "") }

// CheckAsked is Check for labels that a task asks for: their values may contain a "*", which
// stands for any characters.
func (l Labels) CheckAsked() error { return l.check(labelAsked, " or *") }

func (l Labels) check(value *regexp.Regexp, more string) error {
	if len(l) > maxLabels {
		return fmt.Errorf("%d labels: want at most %d", len(l), maxLabels)
	}
	for _, name := range slices.Sorted(maps.Keys(l)) {
		if !labelName.MatchString(name) {
			return fmt.Errorf("label %q: want a name of 1 to 63 of A-Z a-z 0-9 . _ / - that begins with a letter or digit", clip(name))
		}
		if !value.MatchString(l[name]) {
			return fmt.Errorf("label %s: value %q: want at most 63 of A-Z a-z 0-9 . _ @ / + -%s", name, clip(l[name]), more)
		}
	}
	return nil
}

// ParseLabel reads "name:value".
func ParseLabel(text string) (name, value string, err error) {
	name, value, ok := strings.Cut(text, ":")
	if !ok {
		return "", "", fmt.Errorf("label %q: want name:value", clip(text))
	}
	return name, value, nil
}

// ParseLabels reads labels of the form "name:value". No name may occur twice.
func ParseLabels(texts []string) (Labels, error) {
	labels := Labels{}
	for _, text := range texts {
		name, value, err := ParseLabel(text)
		if err != nil {
			return nil, err
		}
		if _, twice := labels[name]; twice {
			return nil, fmt.Errorf("label %s is given twice: want it once", clip(name))
		}
		labels[name] = value
	}
	return labels, nil
}

// Texts are the labels in the form that ParseLabels reads, sorted by name.
func (l Labels) Texts() []string {
	texts := make([]string, 0, len(l))
	for _, name := range slices.Sorted(maps.Keys(l)) {
		texts = append(texts, name+":"+l[name])
	}
	return texts
}
