package natskv

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/internal/natsget"
	"leasehold/lease"
)

// Sites is the KV bucket of the files about sites: one key per site. A launcher that cannot use it
// knows only what it was told otherwise.
const Sites = "leasehold_sites"

var _ lease.SiteStore = (*Store)(nil)

func sitesConfig() jetstream.StreamConfig {
	return bucketConfig(Sites, "Leasehold: what is known of sites, one key per site", hostHistory)
}

func sitesDrift(c jetstream.StreamConfig) error { return bucketDrift(sitesConfig(), c) }

// siteKey is the form of a site's name: one part of a subject.
var siteKey = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)

func errSiteName(name string) error {
	return fmt.Errorf("name of a site %.80q: want 1 to 64 of a-z 0-9 _ -", name)
}

// PutSite is part of lease.SiteStore. It tries only once: whoever gets no answer finds out by the
// watch whether it was stored.
func (s *Store) PutSite(ctx context.Context, e lease.SiteEntry) (uint64, error) {
	return s.putSite(ctx, "", e)
}

// SiteCounts is part of lease.SiteStore.
func (s *Store) SiteCounts(ctx context.Context, name string) (lease.SiteEntry, error) {
	if !siteKey.MatchString(name) { // it becomes a subject
		return lease.SiteEntry{}, errSiteName(name)
	}
	ctx, cancel := context.WithTimeout(ctx, s.tryTime)
	defer cancel()
	m, err := s.read(ctx, s.sites, natsget.Request{LastFor: keyPrefix(s.sites) + counts + name})
	if err != nil && !errors.Is(err, natsget.ErrNone) {
		return lease.SiteEntry{}, fmt.Errorf("counts of site %s: %w", name, err)
	}
	return lease.SiteEntry{Name: name, Data: m.Data, Revision: m.Seq}, nil
}

// PutSiteCounts is part of lease.SiteStore.
func (s *Store) PutSiteCounts(ctx context.Context, e lease.SiteEntry) error {
	_, err := s.putSite(ctx, counts, e)
	return err
}

// counts begins the keys of counts, which have a part more than those of files: who watches the files
// leaves them out.
const counts = "counts."

func (s *Store) putSite(ctx context.Context, before string, e lease.SiteEntry) (uint64, error) {
	if !siteKey.MatchString(e.Name) {
		return 0, errSiteName(e.Name)
	}
	m := &nats.Msg{Subject: keyPrefix(s.sites) + before + e.Name, Data: e.Data}
	if e.Gone || len(e.Data) == 0 {
		m.Header = nats.Header{operationHeader: {"DEL"}}
	}
	ctx, cancel := context.WithTimeout(ctx, s.tryTime)
	defer cancel()
	at := e.Revision
	if at == 0 { // what was removed has a marker
		last, err := s.read(ctx, s.sites, natsget.Request{LastFor: m.Subject})
		switch {
		case err == nil && !last.deleted():
			return 0, lease.ErrSiteMoved
		case err != nil && !errors.Is(err, natsget.ErrNone):
			return 0, fmt.Errorf("sites: %w", err)
		}
		at = last.Seq
	}
	ack, err := s.sites.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0), jetstream.WithExpectLastSequencePerSubject(at))
	var refused *jetstream.APIError
	switch {
	case errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:
		return 0, lease.ErrSiteMoved
	case err != nil:
		return 0, unavailable(fmt.Errorf("sites: %w", err))
	}
	s.sites.saw(ack.Sequence)
	return ack.Sequence, nil
}

// WatchSites is part of lease.SiteStore.
func (s *Store) WatchSites(ctx context.Context, see func(lease.SiteSight)) error {
	err := s.watchLast(ctx, s.sites, lastWatch{
		fresh:    func() { see(lease.SiteSight{Fresh: true}) },
		complete: func() { see(lease.SiteSight{Complete: true}) },
		show: func(m message) {
			name := strings.TrimPrefix(m.Subject, keyPrefix(s.sites))
			if siteKey.MatchString(name) {
				see(lease.SiteSight{Entry: lease.SiteEntry{Name: name, Data: m.Data, Revision: m.Seq, Gone: m.deleted()}})
			}
		},
	})
	if err != nil {
		return fmt.Errorf("sites: %w", err)
	}
	return nil
}
