package session

import (
	"testing"

	"leasehold/internal/test/leaks"
	"leasehold/launcher/principal"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// anAdmin is who may join sessions of which nobody knows who opened them.
var anAdmin = principal.Principal{Name: "uid:0", Role: principal.Admin, Profiles: principal.EveryProfile}
