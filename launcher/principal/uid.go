package principal

import (
	"fmt"
	"strconv"
	"strings"
)

// overflowUID is the uid that the kernel reports for every user that the sidecar's user
// namespace does not have.
const overflowUID = 65534

// UserName is the name of the principal that a user of this host is.
func UserName(uid uint32) string { return "uid:" + strconv.FormatUint(uint64(uid), 10) }

func user(uid uint32, role Role, profiles Patterns) Principal {
	return Principal{Name: UserName(uid), Role: role, Profiles: profiles, Proof: "the user of the connection", UID: &uid}
}

// ParseUser reads the value of --allow-uid, UID=ROLE[:PATTERN]...
func ParseUser(text string) (Principal, error) {
	number, rest, found := strings.Cut(text, "=")
	uid, err := strconv.ParseUint(strings.TrimSpace(number), 10, 32)
	if !found || err != nil {
		return Principal{}, fmt.Errorf("%q: want UID=ROLE:PATTERN such as 1000=worker:shop_*", text)
	}
	if uid == overflowUID {
		return Principal{}, fmt.Errorf("%q: %d stands for every user whom the sidecar's user namespace does not have: name one, or give tokens", text, overflowUID)
	}
	roleText, patterns, _ := strings.Cut(rest, ":")
	role, err := ParseRole(strings.TrimSpace(roleText))
	if err != nil {
		return Principal{}, fmt.Errorf("%q: %w", text, err)
	}
	profiles := EveryProfile
	if patterns != "" {
		profiles, err = ParsePatterns(strings.Split(patterns, ":"))
	} else if role != Admin {
		err = fmt.Errorf("no profiles: want UID=ROLE:PATTERN such as %d=%s:shop_*, with * for all", uid, role)
	}
	if err != nil {
		return Principal{}, fmt.Errorf("%q: %w", text, err)
	}
	return user(uint32(uid), role, profiles), nil
}
