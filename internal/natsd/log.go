package natsd

import (
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"
)

var _ server.Logger = (*logBridge)(nil)

// logBridge writes the server's log to a zerolog.Logger. The server expects its logger to
// end the process at a fatal message. This one goes on, and remembers the first.
type logBridge struct {
	log   zerolog.Logger
	first atomic.Pointer[string]
	// trouble is called with each error in the server's log; it may be nil.
	trouble func(text string)
}

// fatal returns the first fatal message, or "" if there was none.
func (b *logBridge) fatal() string {
	if s := b.first.Load(); s != nil {
		return *s
	}
	return ""
}

// Noticef is part of server.Logger.
func (b *logBridge) Noticef(format string, v ...any) { b.log.Debug().Msgf(format, v...) }

// Warnf is part of server.Logger.
func (b *logBridge) Warnf(format string, v ...any) { b.log.Warn().Msgf(format, v...) }

// Errorf is part of server.Logger.
func (b *logBridge) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	b.log.Warn().Msg(text)
	if b.trouble != nil {
		b.trouble(text)
	}
}

// Fatalf is part of server.Logger. It does not end the process.
func (b *logBridge) Fatalf(format string, v ...any) {
	s := fmt.Sprintf(format, v...)
	b.first.CompareAndSwap(nil, &s)
	b.log.Warn().Msg(s)
}

// Debugf is part of server.Logger.
func (b *logBridge) Debugf(format string, v ...any) { b.log.Debug().Msgf(format, v...) }

// Tracef is part of server.Logger.
func (b *logBridge) Tracef(format string, v ...any) { b.log.Trace().Msgf(format, v...) }
