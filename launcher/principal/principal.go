// Package principal knows who may do what: the roles and their rights, the principals, and how
// they are identified. Its only effect is to read the file of API tokens.
package principal

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"leasehold/lease"
)

// Principal is a caller. The zero Principal is nobody, and may do nothing.
type Principal struct {
	// Name is unique. The name of a user of this host is "uid:1000"; other names have no colon.
	Name     string
	Role     Role
	Profiles Patterns
	// Proof is how the name was proved, in words.
	Proof string
	// MaxPriority is the highest priority that its requests may have, if its role does not
	// decide that.
	MaxPriority int
	// Link says that this is whoever has a sign-in link: they may use the pages of one session, and
	// do nothing else.
	Link bool
	// Person is the name of the person who acts, where several share the principal, as they say themselves; empty:
	// they do not say.
	Person string
	// UID is the user of this host at the other end of the connection; nil if the kernel does
	// not know it, or if it is a proxy's.
	UID *uint32
}

// OfLink is whoever has the sign-in link with this id. No other principal has such a name.
func OfLink(id string) Principal {
	return Principal{Name: linkPrefix + id, Proof: "a sign-in link", Link: true}
}

const linkPrefix = "link:"

// IsLink tells whether a principal of this name is whoever has a sign-in link.
func IsLink(name string) bool { return strings.HasPrefix(name, linkPrefix) }

// May tells whether the principal has a right on a profile.
func (p Principal) May(right Right, profileID string) bool {
	return p.Role.Has(right) && (right == Describe || p.Profiles.Match(profileID))
}

// Everywhere tells whether the principal has a right on every profile.
func (p Principal) Everywhere(right Right) bool {
	return p.Role.Has(right) && slices.Equal(p.Profiles, EveryProfile)
}

// TopPriority is the highest priority that the principal's requests may have. A principal that
// manages profiles may use any.
func (p Principal) TopPriority() int {
	if p.Role.Has(Manage) {
		return lease.MaxPriority
	}
	return p.MaxPriority
}

// ActsAs tells whether this may be the person of a name, of those who share the principal.
func (p Principal) ActsAs(person string) bool { return p.Person == "" || p.Person == person }

// Is tells whether this is the principal that opened a session. A session of an older launcher
// has no opener: then only an admin counts.
func (p Principal) Is(opener string) bool {
	if opener == "" {
		return p.Role == Admin
	}
	return p.Name == opener
}

// String tells people who the principal is taken for.
func (p Principal) String() string {
	if p.Name == "" {
		return "nobody"
	}
	return fmt.Sprintf("%s (role %s, profiles %s, by %s)", p.Name, p.Role, strings.Join(p.Profiles, " "), p.Proof)
}

// Refusal says why the principal may not do something to a profile, and what to do. An empty
// profile stands for all profiles.
func (p Principal) Refusal(right Right, profileID string) string {
	if !p.Role.Has(right) {
		return fmt.Sprintf("you are %s: this needs one of the roles %s. Ask who runs this sidecar, who gives roles by --allow-uid or --tokens", p, join(With(right)))
	}
	return fmt.Sprintf("you are %s, and no pattern of yours is of profile %q: ask who runs this sidecar, who gives patterns by --allow-uid or --tokens", p, profileID)
}

type key struct{}

// In returns a context in which the principal is the caller.
func In(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, key{}, p)
}

// Of returns the caller of ctx; the zero Principal if there is none.
func Of(ctx context.Context) Principal {
	p, _ := ctx.Value(key{}).(Principal)
	return p
}
