package session

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// browserVar makes the test binary play the process of a browser, see chromium.
const browserVar = "LEASEHOLD_SESSION_TEST_BROWSER"

func TestMain(m *testing.M) {
	if os.Getenv(browserVar) != "" {
		playBrowser(os.Args)
	}
	if err := os.Setenv(browserVar, "1"); err != nil { // what is started from here on
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
