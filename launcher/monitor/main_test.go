package monitor

import (
	"testing"

	"go.uber.org/goleak"

	"leasehold/checkpoint"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// direct returns a monitor that nobody runs: the sink gets at once what it reports.
func direct(sink func(checkpoint.Entry)) *Monitor {
	m := New(sink)
	m.outbox.closed = true
	return m
}
