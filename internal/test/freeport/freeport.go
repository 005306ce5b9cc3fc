// Package freeport finds ports for servers that tests start by number.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
)

// The ports are outside the range from which Linux takes those of outgoing connections and
// of servers that leave the choice to it: between the choice here and the server's start, no
// one else gets them by chance.
const first, last = 20000, 32000

// Take returns ports of 127.0.0.1 that nobody listens on, each another one. Until the test ends
// it gives them to nobody else in this network namespace.
func Take(t testing.TB, count int) []int {
	t.Helper()
	var ports []int
	for len(ports) < count {
		port := first + rand.IntN(last-first)
		// A name without a file, which is gone with its process.
		taken, err := net.Listen("unix", fmt.Sprintf("@leasehold-test-port-%d", port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = taken.Close() })
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // not before all are found
		ports = append(ports, port)
	}
	return ports
}
