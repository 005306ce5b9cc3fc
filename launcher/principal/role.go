package principal

import (
	"fmt"
	"slices"
	"strings"
)

// Role is what a principal is trusted with.
type Role string

// The roles.
const (
	Worker   Role = "worker"
	Viewer   Role = "viewer"
	Reviewer Role = "reviewer"
	Operator Role = "operator"
	Admin    Role = "admin"
)

// Right is one kind of thing that the sidecar can be asked for. All rights except Describe are
// rights on profiles, and are limited by the principal's patterns.
type Right string

// The rights.
const (
	// Describe is to read what is about no profile: the OpenAPI document.
	Describe Right = "describe"
	// Open is to open sessions.
	Open Right = "open"
	// Use is to see, drive, write to and end sessions that the principal opened itself.
	Use Right = "use"
	// Read is to read profiles, sessions, histories, inspections and metrics, whoever they
	// belong to.
	Read Right = "read"
	// Evidence is to read evidence and pictures.
	Evidence Right = "evidence"
	// Review is to decide about a profile in review.
	Review Right = "review"
	// Hold is to open a profile by hand.
	Hold Right = "hold"
	// TakeOver is to watch living sessions, to take them over and to hand them back.
	TakeOver Right = "take over"
	// Manage is to make, change, import, clone, remove and archive profiles.
	Manage Right = "manage"
	// UseAny is to see, write to and end sessions of others.
	UseAny Right = "use any"
)

// Row is one line of the table of roles.
type Row struct {
	Role   Role
	Rights []Right
	// Means explains the rights to people.
	Means string
}

// Table says what each role may do. Nothing else says that.
func Table() []Row {
	return []Row{
		{Worker, []Right{Describe, Open, Use}, "opens sessions; sees, drives, writes to and ends those that it opened"},
		{Viewer, []Right{Describe, Read, Evidence}, "reads profiles, sessions, histories, inspections, metrics, pictures and evidence; opens the console"},
		{Reviewer, []Right{Describe, Use, Read, Evidence, Review, Hold, TakeOver}, "viewer; decides about profiles in review, uses profiles by hand, and takes over living sessions"},
		{Operator, []Right{Describe, Open, Use, Read, Evidence, Review, Hold, TakeOver, Manage}, "reviewer and worker; makes, changes, imports, clones, removes and archives profiles"},
		{Admin, []Right{Describe, Open, Use, Read, Evidence, Review, Hold, TakeOver, Manage, UseAny}, "everything, also the sessions of others"},
	}
}

// Roles are the names of all roles, beginning with the one that may do least.
func Roles() []Role {
	var all []Role
	for _, row := range Table() {
		all = append(all, row.Role)
	}
	return all
}

// ParseRole reads the name of a role.
func ParseRole(name string) (Role, error) {
	if !slices.Contains(Roles(), Role(name)) {
		return "", fmt.Errorf("role %q: want one of %s", name, join(Roles()))
	}
	return Role(name), nil
}

// Has tells whether the role has a right.
func (r Role) Has(right Right) bool {
	for _, row := range Table() {
		if row.Role == r {
			return slices.Contains(row.Rights, right)
		}
	}
	return false
}

// With are the roles that have a right.
func With(right Right) []Role {
	var all []Role
	for _, row := range Table() {
		if slices.Contains(row.Rights, right) {
			all = append(all, row.Role)
		}
	}
	return all
}

func join(roles []Role) string {
	texts := make([]string, len(roles))
	for i, r := range roles {
		texts[i] = string(r)
	}
	return strings.Join(texts, ", ")
}
