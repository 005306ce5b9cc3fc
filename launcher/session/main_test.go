package session

import (
	"testing"

	"go.uber.org/goleak"

	"leasehold/launcher/principal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// anAdmin is who may join sessions of which nobody knows who opened them.
var anAdmin = principal.Principal{Name: "uid:0", Role: principal.Admin, Profiles: principal.EveryProfile}
