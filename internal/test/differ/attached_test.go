package differ

import (
	"slices"
	"testing"
)

// TestOnlyAttachedIsLeftOut: a change of a target counts as one of attached alone if all
// else was told before, or is told at that place, too.
func TestOnlyAttachedIsLeftOut(t *testing.T) {
	const (
		created  = `{"method":"Target.targetCreated","params":{"targetInfo":{"targetId":"<id 1>","title":"","url":"about:blank","attached":false}}}`
		attached = `{"method":"Target.targetInfoChanged","params":{"targetInfo":{"targetId":"<id 1>","title":"","url":"about:blank","attached":true}}}`
		detached = `{"method":"Target.targetInfoChanged","params":{"targetInfo":{"targetId":"<id 1>","title":"","url":"about:blank","attached":false}}}`
		loaded   = `{"method":"Target.targetInfoChanged","params":{"targetInfo":{"targetId":"<id 1>","title":"a","url":"http://a/","attached":true}}}`
		free     = `{"method":"Target.targetInfoChanged","params":{"targetInfo":{"targetId":"<id 1>","title":"a","url":"http://a/","attached":false}}}`
		titled   = `{"method":"Target.targetInfoChanged","params":{"targetInfo":{"targetId":"<id 1>","title":"a \"b\"","url":"about:blank","attached":true}}}`
		unnamed  = `{"method":"Target.targetInfoChanged","params":{"targetInfo":{"targetId":"<id>","title":"a","url":"http://a/","attached":false}}}`
	)
	on := func(lines ...string) []stream { return []stream{{"b", lines}} }
	for _, tt := range []struct {
		name                  string
		port, through         []stream
		leftPort, leftThrough []string
	}{
		{"one attaches, and leaves", on(created, attached, detached), on(created), nil, nil},
		{"the sidecar leaves", on(created), on(created, detached), nil, nil},
		{"it is attached while it loads", on(created, loaded), on(created, free), nil, nil},
		{"with the one who attaches comes the title", on(created, titled), on(created), nil, nil},
		{"the sidecar tells of a title that is none", on(created), on(created, titled), nil, []string{titled}},
		{"the sidecar tells of no load", on(created, loaded, free), on(created), []string{loaded}, nil},
		{"the sidecar tells of a load that was none", on(created), on(created, loaded), nil, []string{loaded}},
		{"the change was never told of otherwise", on(attached), on(), []string{attached}, nil},
		{"a creation is no change", on(created), on(), []string{created}, nil},
		{"it was told without an order", []stream{{"b", []string{free}}, {"b in any order", []string{unnamed}}}, []stream{{"b in any order", []string{unnamed}}}, nil, nil},
	} {
		met := map[string]int{}
		left := leaveOutAttached(tt.port, tt.through, "b", diff(called(tt.port, "b"), called(tt.through, "b")), met)
		if !slices.Equal(left.Port, tt.leftPort) || !slices.Equal(left.Through, tt.leftThrough) {
			t.Errorf("%s: %q and %q are left", tt.name, left.Port, left.Through)
		}
	}
}
