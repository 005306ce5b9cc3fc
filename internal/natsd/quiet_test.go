package natsd

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats-server/v2/server/pse"
	"github.com/rs/zerolog"
)

// TestTheServersTimersAreQuiet, by the names that this version of the server has for them.
func TestTheServersTimersAreQuiet(t *testing.T) {
	s, err := Start(Options{Dir: t.TempDir(), Log: zerolog.Nop()})
	must(t, s, err)
	defer s.Shutdown()
	nc, err := s.Connect()
	bucket(t, jets(t, connected(t, nc, err)), "b") // the first stream would start the clock

	eventually(t, "the end of the server's clock", func() bool {
		stacks := make([]byte, 1<<20)
		return !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "server/ats.Register")
	})
	var cpu float64
	var rss, vss int64
	if pse.ProcUsage(&cpu, &rss, &vss) == nil {
		t.Error("the server goes on reading how much of the processor the process uses")
	}
	if age := time.Since(time.Unix(0, ats.AccessTime())); age < 0 || age > time.Minute {
		t.Errorf("the server's clock is %s late", age)
	}
	before := ats.AccessTime()
	eventually(t, "the watch to set the server's clock", func() bool { return ats.AccessTime() > before })
}
