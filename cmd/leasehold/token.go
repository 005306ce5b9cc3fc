package main

import (
	"fmt"
	"os"
	"strings"
)

// minTokenLength is the least number of characters of a token.
const minTokenLength = 16

// readToken reads the bearer token that callers have to show. It is the only line of the
// file.
func readToken(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(b))
	switch {
	case token == "":
		return "", fmt.Errorf("--token-file %s is empty: want one line of %d characters or more", path, minTokenLength)
	case len(token) < minTokenLength:
		return "", fmt.Errorf("--token-file %s: the token has %d characters, want %d or more", path, len(token), minTokenLength)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fmt.Errorf("--token-file %s: want one line of ASCII characters without spaces", path)
	}
	return token, nil
}
