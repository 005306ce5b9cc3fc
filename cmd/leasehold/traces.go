//go:build linux

package main

import (
	"context"
	"fmt"
	"net/url"
	"os"

	"leasehold"
	"leasehold/internal/tracing"
)

// validateTraces checks where traces are sent.
func (c RunConfig) validateTraces() error {
	if c.OTLPEndpoint == "" {
		return nil
	}
	u, err := url.Parse(c.OTLPEndpoint)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		// It is not quoted: it may contain a password.
		return fmt.Errorf("--otlp-endpoint: want a URL such as http://127.0.0.1:4318, without user or query (OTEL_EXPORTER_OTLP_HEADERS has credentials)")
	}
	return nil
}

// openTraces begins to send traces, if they are wanted.
func (s *service) openTraces(ctx context.Context) error {
	if !tracing.Wanted(s.config.OTLPEndpoint, os.Getenv) {
		return nil
	}
	tracer, stop, err := tracing.Exporter{Endpoint: s.config.OTLPEndpoint, LauncherID: s.launcherID, Version: leasehold.Version, Log: s.log}.Open(ctx)
	if err != nil {
		return &exitError{exitUsage, fmt.Errorf("--otlp-endpoint: %w", err)}
	}
	s.stops.add("traces", func() error { stop(); return nil })
	s.tracer = tracer
	s.log.Info().Msg("traces of grants and of ends are sent")
	return nil
}
