// Package chromever compares versions of Chrome.
package chromever

import (
	"slices"
	"strconv"
	"strings"
)

// parse returns the four numbers of a version such as 156.0.8078.79.
func parse(version string) (numbers []int, ok bool) {
	parts := strings.Split(strings.TrimSpace(version), ".")
	for _, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return nil, false
		}
		numbers = append(numbers, n)
	}
	return numbers, len(parts) == 4
}

// Older tells whether the version a is older than b. It is not if either is no version.
func Older(a, b string) bool {
	x, okX := parse(a)
	y, okY := parse(b)
	return okX && okY && slices.Compare(x, y) < 0
}

// In returns the version in what a browser prints about itself; empty if there is none.
func In(text string) string {
	for word := range strings.FieldsSeq(text) {
		if _, ok := parse(word); ok {
			return word
		}
	}
	return ""
}
