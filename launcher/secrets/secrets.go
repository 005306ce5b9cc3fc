// Package secrets has the passwords with which the launcher signs accounts in. They come from one file
// that is encrypted with age, and go into fields of pages only: nothing prints them.
package secrets

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/pquerna/otp/totp"

	"leasehold/checkpoint/shape"
	"leasehold/evidence/crypt"
	"leasehold/internal/privatefile"
)

// Hidden is text that no format verb and no encoder prints.
type Hidden string

// Format implements fmt.Formatter.
func (Hidden) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "***") }

// MarshalText implements encoding.TextMarshaler.
func (Hidden) MarshalText() ([]byte, error) { return []byte("***"), nil }

// Secret is what signs one account in at one origin.
type Secret struct {
	// Name is the account: the account_id of a profile, or the profile's own id where it has none.
	Name     string `yaml:"name"`
	Origin   string `yaml:"origin"`
	Username Hidden `yaml:"username"`
	Password Hidden `yaml:"password"`
	// TOTP is the seed of the codes, in base32; empty: there are none.
	TOTP Hidden `yaml:"totp"`
}

// Code is the code of the second factor at that time (RFC 6238: six digits, half a minute, SHA-1).
func (s Secret) Code(now time.Time) (Hidden, error) {
	code, err := totp.GenerateCode(string(s.TOTP), now)
	if err != nil {
		return "", fmt.Errorf("the totp of %s at %s is no seed in base32", s.Name, s.Origin) // the error may quote it
	}
	return Hidden(code), nil
}

// Set is the content of a file. A nil *Set is empty.
type Set struct{ list []Secret }

// Read reads a file that is encrypted to one of the identities.
func Read(path string, with *crypt.Identities) (*Set, error) {
	sealed, _, err := privatefile.Read(path)
	if err != nil {
		return nil, err
	}
	plain, err := with.Decrypt(sealed)
	switch {
	case errors.Is(err, crypt.ErrNoKey):
		return nil, fmt.Errorf("%s: no identity opens it: encrypt it to the recipient of one (age -r RECIPIENT)", path)
	case err != nil:
		return nil, fmt.Errorf("%s: want a file that age has encrypted (age -r RECIPIENT -o FILE): %w", path, err)
	}
	s, err := parse(plain)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func parse(plain []byte) (*Set, error) {
	s := &Set{}
	if err := yaml.UnmarshalWithOptions(plain, &s.list, yaml.Strict()); err != nil {
		// Every line of the error may quote the file.
		return nil, errors.New("want a list in YAML, each with name, origin, username, password, and totp if there is one")
	}
	for i, one := range s.list {
		err := one.check()
		if err == nil && slices.ContainsFunc(s.list[:i], func(o Secret) bool { return o.Name == one.Name && o.Origin == one.Origin }) {
			err = errors.New("it is there twice: want one for each name and origin")
		}
		if err != nil {
			return nil, fmt.Errorf("secret %d (%s at %s): %w", i+1, one.Name, one.Origin, err)
		}
	}
	return s, nil
}

func (s Secret) check() error {
	switch {
	case s.Name == "":
		return errors.New("want a name: the account_id of a profile, or the id of a profile that has none")
	case s.Origin == "" || shape.OriginOf(s.Origin) != s.Origin:
		return errors.New("want an origin in small letters, such as https://shop.example, without a path")
	case s.Password == "":
		return errors.New("want a password")
	case s.TOTP != "":
		_, err := s.Code(time.Time{}.AddDate(2000, 0, 0))
		return err
	}
	return nil
}

// Find returns the secret of an account at an origin. The error names origins, and no value.
func (s *Set) Find(name, origin string) (Secret, error) {
	var others []string
	if s != nil {
		for _, one := range s.list {
			switch {
			case one.Name != name:
			case one.Origin == origin:
				return one, nil
			default:
				others = append(others, one.Origin)
			}
		}
	}
	if len(others) > 0 {
		return Secret{}, fmt.Errorf("the secrets of %s are for %s, not for %s: nothing was typed", name, strings.Join(others, ", "), origin)
	}
	return Secret{}, fmt.Errorf("there is no secret of %s for %s: want one in --secrets with this name (the account_id of the profile, or its id where it has none)", name, origin)
}
