package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// answer remembers what was answered.
type answer struct {
	http.ResponseWriter
	status int
	logged bool
	// beforeServe is called when a websocket is about to be served: its line of
	// the log should not wait for its end.
	beforeServe func()
}

func (a *answer) code() int {
	if a.status == 0 {
		return http.StatusOK
	}
	return a.status
}

// WriteHeader notes the status.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap gives http.ResponseController what is below.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// encode writes JSON as people and shell scripts can read it: & stays &.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// json answers with a document.
func (c *call) json(status int, v any) error {
	body, err := encode(v)
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	c.bytes(status, "application/json", body)
	return nil
}

// text answers with a line for people.
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
