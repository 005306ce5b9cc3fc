package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"leasehold/internal/id"
	"leasehold/internal/privatefile"
	"leasehold/launcher/principal"
)

// minTokenLength is the least number of characters of an API token.
const minTokenLength = 16

// readToken reads the API token that a client shows. It is the only line of the file.
func readToken(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	return checkToken(path, b)
}

// readOwnToken reads the API token that the sidecar accepts, from a file that nobody else can
// have read.
func readOwnToken(path string) (string, error) {
	b, _, err := privatefile.Read(path)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	return checkToken(path, b)
}

func checkToken(path string, b []byte) (string, error) {
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

type tokenCmds struct {
	New tokenNewCmd `cmd:"" help:"Make an API token: print it once, and its line for the file of --tokens."`
}

type tokenNewCmd struct {
	Name     string   `required:"" placeholder:"NAME" help:"Who will show it."`
	Role     string   `required:"" placeholder:"ROLE" help:"What that one may do: worker, viewer, reviewer, operator or admin (docs/access.md)."`
	Profiles []string `placeholder:"PATTERN" help:"Which profiles the role is for, such as shop_*; several by commas, * is all."`
	JSON     bool     `name:"json" help:"Print JSON."`
}

// Run does not ask a sidecar: the file of tokens only contains the API token's hash.
func (c *tokenNewCmd) Run(a *app) error {
	if err := principal.CheckName(c.Name); err != nil {
		return exitWith(exitUsage, "--%w", err)
	}
	role, err := principal.ParseRole(c.Role)
	if err != nil {
		return exitWith(exitUsage, "--%w", err)
	}
	if len(c.Profiles) == 0 && role == principal.Admin {
		c.Profiles = principal.EveryProfile
	}
	patterns, err := principal.ParsePatterns(c.Profiles)
	if err != nil {
		return exitWith(exitUsage, "--profiles: %w", err)
	}
	token := id.Secret()
	hash := fmt.Sprintf("%x", principal.Hash(token))
	if c.JSON {
		b, err := json.Marshal(map[string]any{"name": c.Name, "token": token, "sha256": hash, "role": role, "profiles": patterns})
		if err != nil {
			return fmt.Errorf("token: %w", err)
		}
		return a.printJSON(b)
	}
	quoted := make([]string, len(patterns))
	for i, p := range patterns {
		quoted[i] = fmt.Sprintf("%q", p)
	}
	fmt.Fprintf(a.stdout, "The token, which is shown this once:\n\n%s\n\nIts line, in the list tokens of the file of --tokens:\n\n  - {name: %q, sha256: %q, role: %s, profiles: [%s]}\n",
		token, c.Name, hash, role, strings.Join(quoted, ", "))
	return nil
}
