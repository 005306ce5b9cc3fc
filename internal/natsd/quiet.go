package natsd

import (
	"sync"
	"sync/atomic"
	"time"
	_ "unsafe" // for the names of other packages

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/ats"
	_ "github.com/nats-io/nats-server/v2/server/pse" // has procStatFile
)

// The server has three timers that run whether anybody uses what they are for or not, and that no
// option slows down. Each time wakes some five threads of the process, which was most of what an
// idle sidecar cost. They are ended, or slowed down, through names that the server does not export.
// In another version of it a name may be gone: then a test says so, and the timer is as it was.

// serverClock is the clock, in nanoseconds since 1970, from which the server reads the age of what
// it keeps in memory, and of messages. A goroutine of the server sets it ten times a second. Here
// the watch of the server does so every 4 to 16 seconds: what is removed for its age goes that much
// later, and it is minutes old.
//
//go:linkname serverClock github.com/nats-io/nats-server/v2/server/ats.utime
var serverClock atomic.Int64

// endServerClock has room for one element, which ends that goroutine.
//
//go:linkname endServerClock github.com/nats-io/nats-server/v2/server/ats.done
var endServerClock chan struct{}

// procStatFile is where the server reads once a second how much of the processor the process uses,
// for statistics that nobody asks for. It stops when it cannot read it.
//
//go:linkname procStatFile github.com/nats-io/nats-server/v2/server/pse.procStatFile
var procStatFile string

// hushProcess ends the timers of the process, for as long as it lives: since it stays registered
// for the clock, no stream is the first one, which would start the goroutine, nor the last one.
var hushProcess = sync.OnceFunc(func() {
	ats.Register()
	select {
	case endServerClock <- struct{}{}:
	default:
	}
	stopSampling()
})

// stopSampling is no race that matters: the timer sees the old length or the new one, and the bytes
// are the same.
//
//go:norace
func stopSampling() { procStatFile = procStatFile[:0] }

// logInterval is for how long the server does not repeat a warning, and how often it looks whether
// that is over. By itself it does so every second.
const logInterval = time.Minute

//go:linkname changeRateLimitLogInterval github.com/nats-io/nats-server/v2/server.(*Server).changeRateLimitLogInterval
func changeRateLimitLogInterval(*server.Server, time.Duration)

func setServerClock() { serverClock.Store(time.Now().UnixNano()) }
