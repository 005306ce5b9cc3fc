package lease

import (
	"context"
	"errors"
)

// SiteEntry is the file about one site, as the store has it. What is in it is its readers' affair.
type SiteEntry struct {
	Name string
	Data []byte
	// Revision is that of the write which stored it; zero: it was never stored, or it is not known.
	Revision uint64
	// Gone says that the file was removed; Data is what is kept of it then.
	Gone bool
}

// SiteStore keeps the files about sites, which all launchers share.
type SiteStore interface {
	// PutSite stores a file in the place of the one with the given revision; zero: there is none,
	// or it was removed. If Gone is set, or there is no data, it removes it. The error is ErrSiteMoved if the store has
	// another revision.
	PutSite(ctx context.Context, e SiteEntry) (revision uint64, err error)
	// WatchSites calls see, one call at a time, first with every file and then with every change,
	// until ctx ends. It starts again if it may have missed something. The error says why it
	// cannot.
	WatchSites(ctx context.Context, see func(SiteSight)) error
	// SiteCounts returns what was counted for a site, which is kept beside the files; without data
	// and revision: nothing was. PutSiteCounts stores it in the place of the one with the given
	// revision, as PutSite does.
	SiteCounts(ctx context.Context, name string) (SiteEntry, error)
	PutSiteCounts(ctx context.Context, e SiteEntry) error
}

// ErrSiteMoved says that somebody else has changed the file meanwhile.
var ErrSiteMoved = errors.New("somebody else has changed it meanwhile")

// SiteSight is one thing that WatchSites reports.
type SiteSight struct {
	// Entry is a file as it was stored, or removed.
	Entry SiteEntry
	// Fresh says that every file follows; Complete, that all have been reported. Then there is no
	// entry.
	Fresh, Complete bool
}
