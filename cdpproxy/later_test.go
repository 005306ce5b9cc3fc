package cdpproxy_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"leasehold/cdpproxy"
)

// patient is a handler that answers the Lease domain later: with what it is told.
type patient struct {
	handler
	answers chan string
	ended   chan error
}

func (p *patient) Lease(_ context.Context, method string, _ json.RawMessage) (any, *cdpproxy.Error) {
	return cdpproxy.Later{Wait: func(ctx context.Context) (any, *cdpproxy.Error) {
		select {
		case a := <-p.answers:
			return map[string]string{method: a}, nil
		case <-ctx.Done():
			p.ended <- ctx.Err()
			return nil, &cdpproxy.Error{Code: -32000, Message: "too late"}
		}
	}}, nil
}

// TestAnAnswerThatComesLater: the connection is read meanwhile; a cut answers what waits
// with its reason, once; and nothing waits past the connection's end.
func TestAnAnswerThatComesLater(t *testing.T) {
	s := script(t)
	h := &patient{answers: make(chan string), ended: make(chan error, 2)}
	c := connect(t, s.mux, open(), h)
	first := c.send("Lease.ask", "", nil)
	c.works()
	second := c.send("Lease.other", "", nil)
	c.works()
	h.answers <- "yes"
	got, err := c.next()
	if err != nil || got.ID != first && got.ID != second || !strings.Contains(string(got.Result), `:"yes"}`) {
		t.Fatalf("%+v %v", got, err)
	}
	c.works()
	c.conn.Cut(cdpproxy.CloseQuarantined, "profile quarantined: r")
	cut, err := c.next()
	if err != nil || cut.ID != first+second-got.ID || cut.Error == nil || cut.Error.Message != "leasehold: profile quarantined: r" {
		t.Errorf("%+v %v", cut, err)
	}
	if m, err := c.next(); err == nil {
		t.Errorf("after the cut: %+v", m)
	}
	<-c.end
	if err := <-h.ended; err == nil {
		t.Error("it waits past the connection")
	}

	c = connect(t, s.mux, open(), h)
	c.send("Lease.ask", "", nil)
	c.works()
	_ = c.net.Close()
	<-c.end
	if len(h.ended) != 1 {
		t.Error("Serve returns before all is over")
	}
}
