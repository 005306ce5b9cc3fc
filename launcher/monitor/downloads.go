package monitor

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/chromedp/cdproto/browser"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/evidence/redact"
)

// Downloads follows the downloads of a browser: those of pages that are closed meanwhile, too.
// At most maxKnown are followed at once.
type Downloads struct {
	mu    sync.Mutex
	begun uint64
	open  map[string]Download // by Chrome's id
}

// Download is one that has begun. Both texts are the page's, and clipped.
type Download struct {
	URL    string // without what may be secret in it
	Name   string // of the file, as the page wants it
	number uint64
}

const (
	eventDownloadBegins   = "Browser.downloadWillBegin"
	eventDownloadProgress = "Browser.downloadProgress"
)

var downloadEvents = []string{eventDownloadBegins, eventDownloadProgress}

// tellDownloads makes Chrome send downloadEvents. Chrome tells only a session that has set the
// behaviour; the sessions that the browser serves set their own after that.
var tellDownloads = map[string]any{"behavior": "default", "eventsEnabled": true}

func newDownloads() *Downloads { return &Downloads{open: map[string]Download{}} }

// observe takes one of downloadEvents. The pipe's reader calls it.
func (d *Downloads) observe(event cdpproxy.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if event.Method == eventDownloadProgress {
		var p browser.EventDownloadProgress
		if decode(event, &p) && p.State != browser.DownloadProgressStateInProgress {
			delete(d.open, p.GUID)
		}
		return
	}
	var p browser.EventDownloadWillBegin
	if len(d.open) >= maxKnown || !decode(event, &p) {
		return
	}
	d.begun++
	d.open[p.GUID] = Download{checkpoint.Clip(redact.URL(p.URL)), checkpoint.Clip(p.SuggestedFilename), d.begun}
}

// Unfinished are the downloads that were neither finished nor cancelled, in the order in which
// they began.
func (d *Downloads) Unfinished() []Download {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(maps.Values(d.open), func(a, b Download) int { return cmp.Compare(a.number, b.number) })
}
