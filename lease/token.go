package lease

import "fmt"

// maxToken is the highest token. No profile comes near it by grants, and the claims that are
// believed (MaxClaim) are far below it: a higher one was written by somebody else.
const maxToken Token = 1 << 62

// TokenError says that a profile has the highest token, or one above it, so that no other can be
// above that.
type TokenError struct {
	Profile string
	Token   Token
}

func (e *TokenError) Error() string {
	return fmt.Sprintf("lease of %s: token %d cannot be raised: no launcher comes to such a number, so somebody else wrote it; restore the record from a backup of the lease store", e.Profile, e.Token)
}

// raise gives the record a token above its own and above floor. The error is a *TokenError.
func (r *Record) raise(floor Token) error {
	highest := max(r.Token, floor)
	if highest >= maxToken {
		return &TokenError{r.ProfileID, highest}
	}
	r.Token, r.Opened, r.SnapshotOpened = highest+1, 0, 0
	return nil
}
