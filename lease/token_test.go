package lease

import (
	"errors"
	"testing"
	"time"
)

// No token is ever zero again: a record with a token to which no launcher comes is not granted,
// and not quarantined.
func TestTokensDoNotWrap(t *testing.T) {
	for _, token := range []Token{maxToken, 1<<64 - 2, 1<<64 - 1} {
		_, granted := Record{ProfileID: "p", State: Available, Token: token}.Grant(Request{SessionID: "s", LauncherID: "home"}, time.Now())
		_, fenced := Record{ProfileID: "p", State: SuspectedStale, Token: token}.Quarantine(0, time.Now())
		_, claimed := Record{ProfileID: "p", State: SuspectedStale, Token: 7}.Quarantine(token, time.Now())
		for _, err := range []error{granted, fenced, claimed} {
			var high *TokenError
			if !errors.As(err, &high) || high.Token != token {
				t.Errorf("token %d: %v", token, err)
			}
		}
	}
	if r, err := (Record{ProfileID: "p", State: SuspectedStale, Token: 7}).Quarantine(MaxClaim, time.Now()); err != nil || r.Token != MaxClaim+1 {
		t.Errorf("a claim that is believed: %+v, %v", r, err)
	}
}
