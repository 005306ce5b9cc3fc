package natsd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"leasehold/internal/durable"
)

// A server whose stream once could not be written, because the disk was full or failed, refuses
// every later write to that stream, even when there is room again: what it has in memory is no
// longer what is on the disk. It only says so in its log. Only a server that reads the files
// again can go on. So this process listens to that log, and replaces the server.

const (
	// watchEvery is the time between two looks at the server and its disk, and two settings of the
	// server's clock; restEvery, while abundant bytes are free; hasteEvery, while less than plenty, in
	// bytes, is free, or the server does not store anything. No multiple of watchEvery or restEvery is
	// the ten seconds for which the server keeps what it has read: at these it would look ten times a
	// second whether they are over.
	watchEvery = 4 * time.Second
	restEvery  = 16 * time.Second
	hasteEvery = time.Second
	plenty     = 512 << 20
	abundant   = 8 << 30
	// room, in bytes, has to be free for a server to be started again. While less is free, the
	// server is given space from the reserve.
	room = 2 << 20
	// trialSize, in bytes, is what is written to find out whether the disk takes writes.
	trialSize = 256 << 10
)

// writeError is the beginning of the line in which the server says that a stream takes no
// writes any more.
const writeError = "Critical write error"

// NotWritingError says that the embedded server cannot store anything.
type NotWritingError struct {
	Dir string
	// Cause is what the server said, or the error of a write.
	Cause string
}

func (e *NotWritingError) Error() string {
	return fmt.Sprintf("the NATS server inside this sidecar could not write to %s (%s): make room on that disk, or mend it; the server is then started again by itself", e.Dir, e.Cause)
}

// Problem returns why the server cannot store anything: a *NotWritingError, or the error of a
// start; nil if, as far as is known, it can.
func (s *Server) Problem() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

// hear takes in an error from the server's log, for the next look. A write error has precedence
// over others.
func (s *Server) hear(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !strings.Contains(s.said, writeError) {
		s.said = text
	}
	select {
	case s.spoke <- struct{}{}:
	default:
	}
}

// heard returns what was heard since its last call.
func (s *Server) heard() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	said := s.said
	s.said = ""
	return said
}

// watch replaces the server when it takes no writes any more, until Shutdown.
func (s *Server) watch() {
	next := time.NewTimer(0) // a disk that has little room is looked at often from the start
	defer next.Stop()
	for {
		select {
		case <-next.C:
		case <-s.spoke: // it may say more
			select {
			case <-next.C:
			case <-time.After(hasteEvery):
			case <-s.stop:
				return
			}
		case <-s.stop:
			return
		}
		setServerClock()
		pause := watchEvery
		switch free := s.makeRoom(); {
		case free < plenty:
			pause = hasteEvery
		case free >= abundant:
			pause = restEvery
		}
		if why := s.cannotWrite(s.heard()); why != "" {
			s.fail(&NotWritingError{s.o.Dir, why})
		}
		if s.Problem() != nil {
			pause = hasteEvery
			s.mend()
		}
		next.Reset(pause)
	}
}

// makeRoom gives the server space from the reserve before its disk is full. It returns how many
// bytes are free; zero if that is not known.
func (s *Server) makeRoom() uint64 {
	for {
		free, err := durable.FreeSpace(s.o.Dir)
		if err != nil {
			return 0
		}
		if free.Bytes >= room || !s.o.Reserve.Give(s.o.Dir) {
			return free.Bytes
		}
		s.log.Warn().Str("dir", s.o.Dir).Int64("left", s.o.Reserve.Left()).Msg("the disk is full: the embedded NATS server goes on in the space that is kept for that")
	}
}

// cannotWrite tells why the server cannot store anything; it is empty if nothing suggests that.
// said is an error that the server reported, if any.
func (s *Server) cannotWrite(said string) string {
	srv := s.current()
	if srv == nil || said == "" && srv.JetStreamEnabled() {
		return ""
	}
	if strings.Contains(said, writeError) {
		return said
	}
	if err := s.trial(); err != nil {
		return err.Error()
	}
	if !srv.JetStreamEnabled() {
		return "it has stopped to store anything; its log says why"
	}
	return ""
}

// trial writes to the disk of the server, and removes it again.
func (s *Server) trial() error {
	path := filepath.Join(s.o.Dir, durable.Unfinished+"trial")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, trialSize))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(path))
}

// fail remembers why nothing can be stored, and logs it once.
func (s *Server) fail(problem error) {
	s.mu.Lock()
	known := s.problem != nil
	s.problem = problem
	s.mu.Unlock()
	if !known {
		s.log.Error().Err(problem).Msg("the embedded NATS server does not store anything")
	}
}

// mend starts another server on the directory, if its disk takes writes.
func (s *Server) mend() {
	free, err := durable.FreeSpace(s.o.Dir)
	if err != nil || free.Bytes < room || s.trial() != nil {
		return
	}
	begun := time.Now()
	s.mu.Lock()
	old := s.srv
	s.srv = nil
	s.mu.Unlock()
	if old != nil {
		old.Shutdown()
		old.WaitForShutdown()
	}
	s.heard() // what the old one said is over
	next, gate, err := s.boot()
	if err != nil {
		s.fail(fmt.Errorf("the NATS server inside this sidecar could not be started again: %w", err))
		return
	}
	s.mu.Lock()
	s.srv, s.gate, s.problem = next, gate, nil
	s.mu.Unlock()
	s.log.Info().Dur("took", time.Since(begun)).Msg("the embedded NATS server was started again: it stores everything as before")
}
