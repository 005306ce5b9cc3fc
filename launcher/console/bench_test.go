package console

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"leasehold/launcher/api"
	"leasehold/launcher/catalog"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// held is a launcher that has its rows in memory.
type held struct {
	api.Service // nil: what the list does not need
	rows        []*catalog.Row
}

func (h held) ListProfiles(_ context.Context, q api.ProfileQuery) (api.ProfilePage, error) {
	return catalog.List(h.rows, q, noon), nil
}

func (h held) Ready(context.Context) error { return nil }

// BenchmarkList is the console's first page of ten thousand profiles, on the server.
func BenchmarkList(b *testing.B) {
	var h held
	for _, r := range fleet(10000) {
		h.rows = append(h.rows, catalog.NewRow(lease.Entry{Record: r.Record}))
	}
	pages := Handler(h, zerolog.Nop())
	admin := principal.Principal{Name: "ada", Role: principal.Admin, Profiles: principal.EveryProfile}
	for name, path := range map[string]string{"first": "/", "searched": "/?q=orders+77", "state": "/?state=held&sort=-changed"} {
		b.Run(name, func(b *testing.B) {
			began, size := time.Now(), 0
			for b.Loop() {
				w, r := httptest.NewRecorder(), httptest.NewRequest("GET", path, nil)
				r.Pattern = "GET /"
				pages.ServeHTTP(w, r.WithContext(principal.In(r.Context(), admin)))
				size = w.Body.Len()
			}
			b.ReportMetric(float64(time.Since(began).Milliseconds())/float64(b.N), "ms/page")
			b.ReportMetric(float64(size), "B/page")
		})
	}
}
