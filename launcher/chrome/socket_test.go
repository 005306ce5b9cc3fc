package chrome

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"leasehold/internal/peer"
	"leasehold/internal/runas"
)

// Whatever runs as the browser user is refused, without a look at its processes. Other users are
// not, nor is who is unknown: these prove nobody.
func TestTheBrowserUserIsNoClient(t *testing.T) {
	const browsers, worker = 54777, 54321
	admit := ClientsOnly(&runas.User{UID: browsers, GID: browsers})
	for name, c := range map[string]struct {
		uid     uint32
		unknown error
		refused bool
	}{
		"the browser user":     {browsers, nil, true},
		"a worker's user":      {worker, nil, false},
		"the sidecar's user":   {uint32(os.Geteuid()), nil, false},
		"nobody knows of whom": {0, fs.ErrNotExist, false},
	} {
		if err := admit(peer.Socket{UID: c.uid}, c.unknown); errors.Is(err, ErrBrowser) != c.refused || err != nil && !c.refused {
			t.Errorf("%s: %v, want refused: %v", name, err, c.refused)
		}
	}
}
