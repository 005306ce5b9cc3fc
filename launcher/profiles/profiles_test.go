package profiles

import (
	"fmt"
	"testing"

	"leasehold/lease"
)

func TestHistoryReachesToTheState(t *testing.T) {
	granted := lease.Event{Event: "granted", Token: 1, Sequence: 1}
	conflict := lease.Event{Event: lease.EventConflict, Token: 1}
	released := lease.Event{Event: "released", Token: 1, Sequence: 2}
	again := lease.Event{Event: "granted", Token: 2, Sequence: 3}
	for _, tt := range []struct{ stream, outbox, want []lease.Event }{
		{nil, nil, nil},
		{nil, []lease.Event{granted}, []lease.Event{granted}},
		{[]lease.Event{granted, conflict}, nil, []lease.Event{granted, conflict}},
		{[]lease.Event{granted, conflict}, []lease.Event{granted, released, again}, []lease.Event{granted, conflict, released, again}},
		{[]lease.Event{granted, released, again}, []lease.Event{released, again}, []lease.Event{granted, released, again}},
	} {
		if got := withOutbox(tt.stream, tt.outbox); fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("stream %v, outbox %v: %v, want %v", tt.stream, tt.outbox, got, tt.want)
		}
	}
}
