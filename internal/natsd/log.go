package natsd

import (
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"
)

var _ server.Logger = (*logBridge)(nil)

// logBridge passes the server's log on. What the server calls fatal it only
// logs, and expects the logger to end the process: this one remembers it.
type logBridge struct {
	log   zerolog.Logger
	first atomic.Pointer[string]
}

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
func (b *logBridge) Errorf(format string, v ...any) { b.log.Warn().Msgf(format, v...) }

// Fatalf is part of server.Logger. It returns.
func (b *logBridge) Fatalf(format string, v ...any) {
	s := fmt.Sprintf(format, v...)
	b.first.CompareAndSwap(nil, &s)
	b.log.Warn().Msg(s)
}

// Debugf is part of server.Logger.
func (b *logBridge) Debugf(format string, v ...any) { b.log.Debug().Msgf(format, v...) }

// Tracef is part of server.Logger.
func (b *logBridge) Tracef(format string, v ...any) { b.log.Trace().Msgf(format, v...) }
