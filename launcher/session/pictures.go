package session

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/evidence/capture"
	"leasehold/launcher/browser"
	"leasehold/launcher/monitor"
	"leasehold/launcher/recovery"
	"leasehold/launcher/recovery/findings"
)

// While a session lives, its pages are pictured now and then, and the pictures go straight into
// the evidence store: if the host is lost with its Chrome, they are all that another launcher
// and a person have. A picture is worth less than the worker's time: it is taken in the
// background, and given up if it is slow.

const (
	// pictureSettle is how long a change may take to show before it is pictured.
	pictureSettle = time.Second
	// pictureSpacing is the least time between two pictures of a session, however
	// often its task names checkpoints.
	pictureSpacing = time.Second
	// pictureAsk bounds how long Chrome may take to say where a page is, in time that the host gives.
	pictureAsk = time.Second
	// pictureStore bounds how long the store may take for one.
	pictureStore = 5 * time.Second
	// picturesAtOnce is how many pictures a launcher takes at a time.
	picturesAtOnce = 2
	// maxUndropped bounds how many pictures are remembered that the store did not remove:
	// retention finds the others.
	maxUndropped = 16
	// maxFramedPages bounds how many pages with sensitive frames are remembered.
	maxFramedPages = 4096
)

// demand is what is known of a session's next picture.
type demand struct {
	interval time.Duration // between pictures that no checkpoint asks for; zero: none are taken
	last     time.Time     // when the last one was begun
	changed  time.Time     // since when something has changed after it; zero: nothing has
	asked    bool          // a checkpoint wants one
	// What the task said last.
	step, checkpoint string
	sensitive        bool // the step
	// frames are the pages, by target, with a sensitive frame in them.
	frames map[string]bool
}

// replay takes in the entries that a journal already has, also from an earlier launcher. They
// do not cause a picture.
func (d *demand) replay(entries []checkpoint.Entry, sensitiveStep func(checkpoint.Entry) bool) {
	past := demand{frames: map[string]bool{}}
	for _, e := range entries {
		past.note(e, e.Kind == checkpoint.KindStep && sensitiveStep(e))
	}
	d.step, d.checkpoint, d.sensitive, d.frames = past.step, past.checkpoint, past.sensitive, past.frames
}

// note takes in a new entry, and tells whether that changes when the next picture is taken.
func (d *demand) note(e checkpoint.Entry, sensitiveStep bool) (changed bool) {
	switch e.Kind {
	case checkpoint.KindCheckpoint:
		d.checkpoint, d.asked = e.Name, true
		return true
	case checkpoint.KindStep:
		d.step, d.sensitive = e.Name, sensitiveStep
	case checkpoint.KindFrame:
		if len(d.frames) >= maxFramedPages {
			clear(d.frames)
		}
		d.frames[e.Target] = true
	case checkpoint.KindURL:
		if e.Committed {
			delete(d.frames, e.Target)
		}
	case checkpoint.KindRequest, checkpoint.KindForm, checkpoint.KindDownload:
	default:
		return false
	}
	if d.interval <= 0 || !d.changed.IsZero() {
		return false
	}
	d.changed = e.At
	return true
}

// due is when the next picture is to be taken; ok is false if none is.
func (d demand) due() (at time.Time, ok bool) {
	if d.asked {
		return d.last.Add(pictureSpacing), true
	}
	if d.changed.IsZero() {
		return time.Time{}, false
	}
	at = d.changed.Add(min(pictureSettle, d.interval))
	if next := d.last.Add(d.interval); !d.last.IsZero() && next.After(at) {
		at = next
	}
	return at, true
}

// pictures takes and keeps the pictures of one session.
type pictures struct {
	*terms
	browser   func() *browser.Browser
	holding   func() tenure
	add       func(checkpoint.Entry) error // into the journal
	archive   *evidence.Archive
	recoverer *recovery.Recoverer
	taken     *prometheus.CounterVec // by result
	picturing chan struct{}          // has room for the pictures that a launcher takes at a time
	patience  func(context.Context, time.Duration) (context.Context, context.CancelFunc)
	ctx       context.Context
	work      *sync.WaitGroup

	woken chan struct{} // one place: demand changed
	stop  context.CancelFunc
	done  chan struct{} // closed when no more pictures are taken; nil: none ever was

	mu     sync.Mutex
	demand demand

	// Used by the goroutine that takes them, and after done at the session's end:
	kept      []evidence.Picture // in the store, the oldest first
	undropped []evidence.Picture // in the store, completely or in part, but not used
}

func newPictures(h *Registry, t *terms, b func() *browser.Browser, holding func() tenure, add func(checkpoint.Entry) error) *pictures {
	return &pictures{
		terms: t, browser: b, holding: holding, add: add, archive: h.o.Archive, recoverer: h.o.Recoverer, taken: h.metrics.pictures, picturing: h.picturing,
		patience: h.o.Patience, ctx: h.ctx, work: h.work, woken: make(chan struct{}, 1), demand: demand{interval: h.o.PictureInterval, frames: map[string]bool{}},
	}
}

// begin takes pictures until end is called. entries are what the session's journal already has.
func (p *pictures) begin(entries []checkpoint.Entry) {
	ctx, stop := context.WithCancel(p.ctx)
	p.stop, p.done = stop, make(chan struct{})
	p.mu.Lock()
	p.demand.replay(entries, p.sensitiveStep)
	p.mu.Unlock()
	p.kept = PicturesIn(entries)
	p.work.Go(func() {
		defer close(p.done)
		p.run(ctx)
	})
}

// end returns when no picture is being taken any more: one that is under way is given up.
func (p *pictures) end() {
	if p.done != nil {
		p.stop()
		<-p.done
	}
}

func (p *pictures) sensitiveStep(e checkpoint.Entry) bool {
	return findings.SensitiveStep(e, p.task())
}

// note takes in an entry that may cause a picture. It does not wait.
func (p *pictures) note(e checkpoint.Entry) {
	sensitive := e.Kind == checkpoint.KindStep && p.sensitiveStep(e)
	p.mu.Lock()
	changed := p.demand.note(e, sensitive)
	p.mu.Unlock()
	if changed {
		select {
		case p.woken <- struct{}{}:
		default:
		}
	}
}

// doing is what the task last said about itself: its step, and its last checkpoint.
func (p *pictures) doing() (step, checkpoint string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.demand.step, p.demand.checkpoint
}

// run takes a picture whenever one is due.
func (p *pictures) run(ctx context.Context) {
	for {
		p.mu.Lock()
		at, due := p.demand.due()
		p.mu.Unlock()
		var timer <-chan time.Time
		if due {
			timer = time.After(time.Until(at))
		}
		select {
		case <-p.woken:
			continue
		case <-timer:
		case <-ctx.Done():
			return
		}
		select {
		case p.picturing <- struct{}{}:
		case <-ctx.Done():
			return
		}
		p.take(ctx)
		<-p.picturing
	}
}

// take takes one picture, and stores it if the lease is still the session's.
func (p *pictures) take(ctx context.Context) {
	p.mu.Lock()
	d := p.demand
	now := time.Now()
	p.demand.asked, p.demand.changed, p.demand.last = false, time.Time{}, now
	p.mu.Unlock()

	url, image, missing := p.shoot(ctx, p.browser().Monitor())
	if missing != "" && missing != isSensitive {
		p.retry(now)
	}
	if missing != "" && !d.asked || ctx.Err() != nil {
		p.taken.WithLabelValues("missing").Inc()
		p.log.Debug().Str("why", missing).Msg("no picture was taken")
		return
	}
	m := p.recoverer.Manifest(p.granted, now.UTC())
	m.SessionID, m.OldWorkerID, m.OldTaskID, m.LeaseToken = p.id, p.manifest.WorkerID, p.manifest.TaskID, uint64(p.token)
	m.Principal = p.manifest.Opener.Name
	m.LastKnownURL, m.LastKnownStep, m.ProfileDir = url, d.step, p.path
	if d.asked {
		m.Checkpoint = d.checkpoint
	}
	ctx, cancel := context.WithTimeout(ctx, pictureStore)
	defer cancel()
	defer context.AfterFunc(p.holding().Context(), cancel)()
	if p.holding().Fence().Check() != nil {
		return // its session is about to end
	}
	picture, err := p.archive.PutPicture(ctx, m, image, missing)
	// A picture that was on its way when the lease was lost does not count.
	if err = errors.Join(err, p.holding().Fence().Check()); err != nil {
		p.taken.WithLabelValues("not_stored").Inc()
		p.log.Warn().Err(err).Msg("picture not stored")
		p.undropped = lastOf(append(p.undropped, picture))
		p.retry(now)
		return
	}
	p.taken.WithLabelValues("stored").Inc()
	p.log.Debug().Str("evidence", picture.EvidenceID).Int("bytes", len(image)).Str("checkpoint", m.Checkpoint).Dur("took", time.Since(now)).Msg("picture stored")
	named, err := json.Marshal(picture)
	if err == nil {
		err = p.add(checkpoint.Entry{Kind: checkpoint.KindPicture, Name: m.Checkpoint, Data: named})
	}
	if err != nil { // recording has said so
		p.drop(ctx, picture)
		return
	}
	var rest []evidence.Picture
	p.kept, rest = evidence.SplitPictures(append(p.kept, picture))
	p.drop(ctx, rest...)
}

// retry has the next change's picture include what could not be pictured.
func (p *pictures) retry(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := &p.demand; d.interval > 0 && d.changed.IsZero() {
		d.changed = now
	}
}

// isSensitive is why a checkpoint on a sensitive place has no image.
const isSensitive = "the page or the step is sensitive: it is pictured only when its session is lost"

// shoot takes a picture of the page that did something last, unless such a picture should not
// be stored.
func (p *pictures) shoot(ctx context.Context, m *monitor.Monitor) (url string, image []byte, missing string) {
	page, ok := m.Primary()
	if !ok {
		return "", nil, "no page is open"
	}
	task := p.task()
	sensitive := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.demand.sensitive || p.demand.frames[page.TargetID] || findings.SensitiveURL(page.URL, task)
	}
	if sensitive() {
		return page.URL, nil, isSensitive
	}
	image, missing = capture.TakePicture(ctx, m.Observer(), page)
	// The picture may show where the page, or a frame in it, went meanwhile, which the monitor
	// may not have processed yet. So Chrome itself is asked: everything that the page's process
	// reported before comes before its answer.
	var now struct {
		TargetInfo struct {
			URL string `json:"url"`
		} `json:"targetInfo"`
	}
	short, cancel := p.patience(ctx, pictureAsk)
	defer cancel()
	if err := m.Observer().Call(short, page.SessionID, "Page.getFrameTree", nil, nil); err != nil {
		return page.URL, nil, "the page is gone: " + err.Error()
	}
	if err := m.Observer().Call(short, "", "Target.getTargetInfo", map[string]any{"targetId": page.TargetID}, &now); err != nil {
		return page.URL, nil, "the page is gone: " + err.Error()
	}
	if err := m.CatchUp(short); err != nil {
		return page.URL, nil, "what the page did last is not known: " + err.Error()
	}
	if page.URL = now.TargetInfo.URL; sensitive() {
		return page.URL, nil, isSensitive
	}
	return page.URL, image, missing
}

// drop removes pictures from the store, and also those whose removal failed before.
func (p *pictures) drop(ctx context.Context, pictures ...evidence.Picture) {
	all := slices.Concat(p.undropped, pictures)
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pictureStore)
	defer cancel()
	p.undropped = nil
	if err := p.archive.DropPictures(ctx, p.profile, all...); err != nil {
		p.log.Debug().Err(err).Msg("pictures not removed yet")
		p.undropped = lastOf(all)
	}
}

func lastOf(pictures []evidence.Picture) []evidence.Picture {
	return pictures[max(0, len(pictures)-maxUndropped):]
}

// forget removes pictures of the session from the store that are not needed: all of them if the
// session ended in order, since its bundle shows the end. It is called after end, and nobody
// waits for it.
func (p *pictures) forget(inOrder bool) {
	var all []evidence.Picture
	if inOrder {
		all = p.kept
	}
	p.work.Go(func() { p.drop(context.Background(), all...) })
}

// PicturesIn are the pictures that a journal names and that are kept.
func PicturesIn(entries []checkpoint.Entry) []evidence.Picture {
	var all []evidence.Picture
	for _, e := range entries {
		var p evidence.Picture
		if e.Kind == checkpoint.KindPicture && json.Unmarshal(e.Data, &p) == nil && p.EvidenceID != "" {
			all = append(all, p)
		}
	}
	kept, _ := evidence.SplitPictures(all)
	return kept
}
