package session

import (
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/internal/test/leasetest"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// alone is what single objects of a session are tested with: no browser, no room, and not the
// session itself.
type alone struct {
	host  *Registry
	store *leasetest.Store
	terms *terms
	life  *life
	file  *kept
	asks  *Asks

	mu    sync.Mutex
	noted []checkpoint.Entry
}

// newAlone returns the objects that the others need, of a session with the manifest. Its lease has token 7.
func newAlone(t *testing.T, m api.Manifest) *alone {
	t.Helper()
	p := &alone{store: leasetest.New(t)}
	metrics := prometheus.NewRegistry()
	var err error
	p.host, err = NewRegistry(t.Context(), new(sync.WaitGroup), Options{
		Timing: lease.Timing{TTL: 30 * time.Second}, PersonGrace: time.Minute, Files: sessionfile.NewDir(t.TempDir(), testkey.Key),
		Announcer: NewAnnouncer("l", p.store, zerolog.Nop(), metrics), Metrics: metrics,
	})
	if err != nil {
		t.Fatal(err)
	}
	p.terms = newTerms(p.host, m, lease.Record{ProfileID: profile, SessionID: "ses_1", Token: 7}, "/p")
	p.life = newLife(p.terms)
	p.file = newKept(p.host, p.terms, p.life, "s3cret", nil)
	p.asks = newAsks(p.host, p.terms, p.life, p.note)
	return p
}

func (p *alone) note(e checkpoint.Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noted = append(p.noted, e)
}
