// Package leaks finds goroutines that the tests of a package left.
package leaks

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main is the TestMain of a package whose tests run NATS servers. It runs the tests, and fails if
// goroutines are left. A server that was shut down lets the last question of a mirror run out, which
// takes seconds: that goroutine is waited for, like all others, for a minute.
func Main(m *testing.M) {
	code := m.Run()
	err := goleak.Find()
	for end := time.Now().Add(time.Minute); code == 0 && err != nil && time.Now().Before(end); {
		err = goleak.Find()
	}
	if code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
