package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// sendTimeout is how long a client may take to accept the next piece of an answer before it is cut
// off: whoever reads on, however slowly, gets all of it. A test makes it shorter.
var sendTimeout = 30 * time.Second

// maxPiece bounds such a piece, in bytes.
const maxPiece = 16 << 10

// answer is a ResponseWriter that remembers the status, and gives up a client that does not read.
type answer struct {
	http.ResponseWriter
	// within is how long the client may take to accept the next piece.
	within time.Duration
	status int // 0 until there is one
	logged bool
	// beforeServe is called before a websocket is served, so that the request's line
	// in the log does not wait for the connection's end.
	beforeServe func()
}

// code is the status for the log.
func (a *answer) code() int {
	if a.status == 0 {
		return http.StatusOK
	}
	return a.status
}

// WriteHeader remembers the first status.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write sends b in pieces. All answers pass here: those of this package, and those of the handlers in
// Options.
func (a *answer) Write(b []byte) (written int, err error) {
	for {
		a.bound()
		n, err := a.ResponseWriter.Write(b[written:min(written+maxPiece, len(b))])
		if written += n; err != nil || written >= len(b) {
			return written, err
		}
	}
}

// FlushError is for http.ResponseController.
func (a *answer) FlushError() error {
	a.bound()
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// bound begins the time that the client has for the next piece.
func (a *answer) bound() { a.until(time.Now().Add(a.within)) }

func (a *answer) until(deadline time.Time) {
	_ = http.NewResponseController(a.ResponseWriter).SetWriteDeadline(deadline) // if it cannot be set, a client that is gone ends the answer
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// encode writes JSON for people and shell scripts: & is not escaped.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

func (c *call) json(status int, v any) error {
	body, err := encode(v)
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	c.bytes(status, "application/json", body)
	return nil
}

func (c *call) text(line string) error {
	c.bytes(http.StatusOK, "text/plain; charset=utf-8", []byte(line))
	return nil
}

// bytes answers with a body as it is.
func (c *call) bytes(status int, mediaType string, body []byte) {
	h := c.w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	c.w.WriteHeader(status)
	_, _ = c.w.Write(body) // a client that is gone needs no answer
}
