package lease

import (
	"testing"
	"time"
)

// TestHowOftenALauncherSignsIn: once in an hour and account, twice in a row, and again when the account
// was found signed in.
func TestHowOftenALauncherSignsIn(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	fresh := Record{ProfileID: "a"}
	once := fresh.BeginSignIn(now)
	twice := once.BeginSignIn(now.Add(time.Hour))
	for name, tt := range map[string]struct {
		profiles []Record
		at       time.Time
		person   bool
	}{
		"never tried":                        {[]Record{fresh}, time.Time{}, false},
		"once":                               {[]Record{once}, now.Add(time.Hour), false},
		"twice":                              {[]Record{twice}, now.Add(2 * time.Hour), true},
		"once in each of two profiles":       {[]Record{once, once.Clone()}, now.Add(time.Hour), true},
		"signed out since":                   {[]Record{twice.Checked(Checked{SignedIn: SignedInNo}, now)}, now.Add(2 * time.Hour), true},
		"not known since":                    {[]Record{twice.Checked(Checked{SignedIn: SignedInUnknown}, now)}, now.Add(2 * time.Hour), true},
		"signed in since, whoever signed in": {[]Record{twice.Checked(Checked{SignedIn: SignedInYes}, now)}, time.Time{}, false},
	} {
		if at, person := MaySignIn(tt.profiles); !at.Equal(tt.at) || person != tt.person {
			t.Errorf("%s: from %v, a person: %v, want %v, %v", name, at, person, tt.at, tt.person)
		}
	}
}
