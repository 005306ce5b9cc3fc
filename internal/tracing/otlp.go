package tracing

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// Wanted tells whether spans are to be sent: an endpoint is given, by a flag or by the
// variables of OpenTelemetry, and these do not turn it off.
func Wanted(endpoint string, getenv func(string) string) bool {
	if getenv("OTEL_SDK_DISABLED") == "true" || getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return endpoint != "" || getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// Exporter says where spans are sent, and from whom.
type Exporter struct {
	// Endpoint is the URL of an OTLP receiver, over HTTP, such as http://127.0.0.1:4318; ""
	// means the one in OpenTelemetry's variables, which also name headers, certificates and the
	// sampler.
	Endpoint            string
	LauncherID, Version string
	Log                 zerolog.Logger
}

// closeTime bounds how long sending the last spans may take; exportTime bounds one attempt.
const (
	closeTime  = 3 * time.Second
	exportTime = 10 * time.Second
)

// Open begins to send spans. A bounded number of them wait in memory, and those that cannot be
// sent are dropped: nothing waits for them. stop sends the last ones, for a few seconds at
// most.
func (e Exporter) Open(ctx context.Context) (_ *Tracer, stop func(), _ error) {
	options := []otlptracehttp.Option{otlptracehttp.WithTimeout(exportTime)}
	if e.Endpoint != "" {
		options = append(options, otlptracehttp.WithEndpointURL(tracesURL(e.Endpoint)))
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, nil, fmt.Errorf("traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithAttributes(
		attribute.String("service.name", "leasehold"), attribute.String("service.version", e.Version), attribute.String("service.instance.id", e.LauncherID),
	), resource.WithFromEnv()) // last, so that OTEL_SERVICE_NAME overrides the others
	if err != nil {
		return nil, nil, fmt.Errorf("traces: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		e.Log.Warn().Str("component", "traces").Err(err).Msg("traces are not sent")
	}))
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(about))
	return New(provider), func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			e.Log.Warn().Str("component", "traces").Err(err).Msg("the last traces are not sent")
		}
	}, nil
}

// tracesURL is where the receiver takes traces: /v1/traces below an endpoint, as for
// OpenTelemetry's own variable.
func tracesURL(endpoint string) string { return strings.TrimSuffix(endpoint, "/") + "/v1/traces" }
