package shape

import "strings"

// plainName returns a name, or a segment of a path, with {} for what is an identifier: the whole of
// it, or what follows a word and one of - _ : and the dot.
func plainName(s string, isIdentifier func(string) bool) string {
	i := strings.LastIndexAny(s, "-_:.")
	switch {
	case s == "":
		return ""
	case len(s) > maxSegment || isUUID(s):
		return hole
	case i > 0 && isIdentifier(s[i+1:]) && (isWord(s[:i]) || !isIdentifier(s)):
		return plainName(s[:i], isIdentifier) + s[i:i+1] + hole
	case isIdentifier(s):
		return hole
	}
	return s
}

func isWord(s string) bool {
	return len(s) <= 16 && !strings.ContainsFunc(s, func(c rune) bool { return !isLetter(c) })
}

// isIdentifier tells whether a segment of a path is the name of one thing among many equal ones,
// judged by what it consists of: it is a number, or letters are mixed with digits.
func isIdentifier(s string) bool {
	if isNumber(s) {
		return true
	}
	letters, digits, others := count(s)
	switch {
	case others > 0:
		return others == strings.Count(s, "-")+strings.Count(s, "_") && len(s) >= 16 && digits >= 3 && mixed(s)
	case len(s) >= 10 && digits >= 2 && letters >= 2 && mixed(s):
		return true
	}
	return len(s) >= 20 && (digits > 0 || mixed(s))
}

// isNumber tells whether a text is a number, of hexadecimal digits too, has a long one in it, or is
// an address of mail. Names in queries and bodies are asked no more: they mix letters and digits.
func isNumber(s string) bool {
	_, digits, others := count(s)
	switch {
	case s == "":
		return false
	case strings.ContainsAny(s, "@%") || isUUID(s): // %: an escaped text
		return true
	case others > 0:
		return false
	}
	return digits == len(s) || digits >= 5 || digits > 0 && len(s) >= 8 && isHex(s)
}

func count(s string) (letters, digits, others int) {
	for _, c := range s {
		switch {
		case isDigit(c):
			digits++
		case isLetter(c):
			letters++
		default:
			others++
		}
	}
	return letters, digits, others
}

// mixed tells whether kinds of characters change often, as they do in random text.
func mixed(s string) bool {
	kind := func(c byte) int {
		switch {
		case c >= '0' && c <= '9':
			return 0
		case c >= 'a' && c <= 'z':
			return 1
		}
		return 2
	}
	changes := 0
	for i := 1; i < len(s); i++ {
		if kind(s[i]) != kind(s[i-1]) {
			changes++
		}
	}
	return changes*4 >= len(s)
}

func isUUID(s string) bool {
	return len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' && isHex(strings.ReplaceAll(s, "-", ""))
}

func isHex(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return !isDigit(c) && (c < 'a' || c > 'f') && (c < 'A' || c > 'F')
	})
}

func isDigit(c rune) bool { return c >= '0' && c <= '9' }

func isLetter(c rune) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func cutLast(s string, c byte) (before, after string, found bool) {
	if i := strings.LastIndexByte(s, c); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}
