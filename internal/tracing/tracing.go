// Package tracing makes spans of what takes time in the life of a lease: a grant, and the end
// of a session. It makes none for single messages. If no endpoint is configured there is no
// Tracer, and all methods of the nil Tracer and of its spans do nothing.
//
// A span contains only names and numbers, the same that logs have: no URL, capability, cookie
// or credential.
package tracing

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Tracer makes spans.
type Tracer struct{ tracer trace.Tracer }

// New makes a Tracer of a provider's.
func New(p trace.TracerProvider) *Tracer { return &Tracer{p.Tracer("leasehold")} }

// About says what a span is about. Empty fields are left out.
type About struct {
	Profile, Session, Worker, Task string
	Token                          uint64
}

func (a About) attributes() []attribute.KeyValue {
	var all []attribute.KeyValue
	for _, one := range []struct{ key, value string }{
		{"leasehold.profile", a.Profile}, {"leasehold.session", a.Session}, {"leasehold.worker", a.Worker}, {"leasehold.task", a.Task},
	} {
		if one.value != "" {
			all = append(all, attribute.String(one.key, one.value))
		}
	}
	if a.Token != 0 {
		all = append(all, attribute.Int64("leasehold.token", int64(a.Token)))
	}
	return all
}

// Follow returns a context with the trace that a request's traceparent header names, so that a
// span becomes part of the caller's.
func (t *Tracer) Follow(ctx context.Context, header http.Header) context.Context {
	if t == nil {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(header))
}

// Span is one thing that is done, and its steps, one after the other. One goroutine uses it at
// a time.
type Span struct {
	tracer *Tracer
	ctx    context.Context
	span   trace.Span
	step   trace.Span // the last step; nil: none is begun
}

// Start begins a span.
func (t *Tracer) Start(ctx context.Context, name string, about About) *Span {
	if t == nil {
		return nil
	}
	s := &Span{tracer: t}
	s.ctx, s.span = t.tracer.Start(ctx, name, trace.WithAttributes(about.attributes()...))
	return s
}

// About adds what the span is about, as far as it was not known before.
func (s *Span) About(a About) {
	if s != nil {
		s.span.SetAttributes(a.attributes()...)
	}
}

// Set adds an attribute.
func (s *Span) Set(key, value string) {
	if s != nil && value != "" {
		s.span.SetAttributes(attribute.String("leasehold."+key, value))
	}
}

// Step ends the last step and begins the next one.
func (s *Span) Step(name string) {
	if s == nil {
		return
	}
	s.endStep()
	_, s.step = s.tracer.tracer.Start(s.ctx, name)
}

func (s *Span) endStep() {
	if s.step != nil {
		s.step.End()
		s.step = nil
	}
}

// maxError bounds the text of an error, in bytes.
const maxError = 300

// End ends the span. Its last step is the one that failed, if err is not nil.
func (s *Span) End(err error) {
	if s == nil {
		return
	}
	if err != nil {
		text := err.Error()
		text = text[:min(len(text), maxError)]
		if s.step != nil {
			s.step.SetStatus(codes.Error, text)
		}
		s.span.SetStatus(codes.Error, text)
	}
	s.endStep()
	s.span.End()
}
