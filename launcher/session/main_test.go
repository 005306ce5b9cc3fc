package session

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"leasehold/launcher/principal"
)

// browserVar makes the test binary play the process of a browser, see chromium.
const browserVar = "SESSION_TEST_BROWSER"

func TestMain(m *testing.M) {
	if os.Getenv(browserVar) != "" {
		playBrowser(os.Args)
	}
	if err := os.Setenv(browserVar, "1"); err != nil { // what is started from here on
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// anAdmin is who may join sessions of which nobody knows who opened them.
var anAdmin = principal.Principal{Name: "uid:0", Role: principal.Admin, Profiles: principal.EveryProfile}
