package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/evidence/capture"
	"leasehold/launcher/recovery"
)

// While a session lives its pages are pictured now and then, straight into the
// evidence store: where the host is lost with its Chrome, that is what another
// launcher and a person have. A picture is worth less than the worker's time: it is
// taken beside everything else, and given up where it is slow.

const (
	// pictureSettle is how long what changed may take to show before it is pictured.
	pictureSettle = time.Second
	// pictureSpacing is the least time between two pictures of a session, however
	// often its task names checkpoints.
	pictureSpacing = time.Second
	// pictureAsk bounds how long Chrome may take to say where a page is.
	pictureAsk = time.Second
	// pictureStore bounds how long the store may take for one.
	pictureStore = 5 * time.Second
	// picturesAtOnce is how many a launcher takes at a time.
	picturesAtOnce = 2
	// maxUndropped bounds what is remembered of pictures that the store did not
	// remove: retention finds the others.
	maxUndropped = 16
)

// demand is what is known of a session's next picture.
type demand struct {
	interval time.Duration // of those that no checkpoint asks for; zero: none
	last     time.Time     // when the last one was begun
	changed  time.Time     // since when something is different from it; zero: nothing is
	asked    bool          // a checkpoint wants one
	// What the task said last.
	step, checkpoint string
	sensitive        bool // the step
	// frames are the pages, by target, with a sensitive frame in them.
	frames map[string]bool
}

// goOn takes in what a journal has been told before, by a launcher before this one
// too. It is no reason for a picture.
func (d *demand) goOn(entries []checkpoint.Entry, sensitiveStep func(checkpoint.Entry) bool) {
	told := demand{frames: map[string]bool{}}
	for _, e := range entries {
		told.note(e, e.Kind == checkpoint.KindStep && sensitiveStep(e))
	}
	d.step, d.checkpoint, d.sensitive, d.frames = told.step, told.checkpoint, told.sensitive, told.frames
}

// note takes in what the journal was told.
func (d *demand) note(e checkpoint.Entry, sensitiveStep bool) (news bool) {
	switch e.Kind {
	case checkpoint.KindCheckpoint:
		d.checkpoint, d.asked = e.Name, true
		return true
	case checkpoint.KindStep:
		d.step, d.sensitive = e.Name, sensitiveStep
	case checkpoint.KindFrame:
		if len(d.frames) >= maxKnown {
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

// due is when the next picture is to be taken, if one is.
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

// pictures are those of one session.
type pictures struct {
	woken chan struct{} // one place: demand changed
	stop  context.CancelFunc
	done  chan struct{} // closed when none is taken any more; nil: none ever was

	mu     sync.Mutex
	demand demand

	// Of the one who takes them; after done, of the session's end:
	kept      []evidence.Picture // in the store, the oldest first
	undropped []evidence.Picture // in the store, or in part, for no use
}

// beginPictures takes pictures until endPictures.
func (s *session) beginPictures() {
	ctx, stop := context.WithCancel(s.l.ctx)
	s.pictures.stop, s.pictures.done = stop, make(chan struct{})
	s.pictures.mu.Lock()
	entries := s.journal.Entries()
	s.pictures.demand.goOn(entries, s.sensitiveStep)
	s.pictures.mu.Unlock()
	s.pictures.kept = picturesIn(entries)
	s.l.work.Go(func() {
		defer close(s.pictures.done)
		s.takePictures(ctx)
	})
}

// endPictures returns when none is taken any more: one that is under way is given
// up.
func (s *session) endPictures() {
	if s.pictures.done != nil {
		s.pictures.stop()
		<-s.pictures.done
	}
}

func (s *session) sensitiveStep(e checkpoint.Entry) bool {
	return recovery.SensitiveStep(e, taskOf(s.manifest, s.granted))
}

// pictureOf tells what may be worth a picture. It does not wait.
func (s *session) pictureOf(e checkpoint.Entry) {
	sensitive := e.Kind == checkpoint.KindStep && s.sensitiveStep(e)
	s.pictures.mu.Lock()
	news := s.pictures.demand.note(e, sensitive)
	s.pictures.mu.Unlock()
	if news {
		select {
		case s.pictures.woken <- struct{}{}:
		default:
		}
	}
}

func (s *session) takePictures(ctx context.Context) {
	for {
		s.pictures.mu.Lock()
		at, due := s.pictures.demand.due()
		s.pictures.mu.Unlock()
		var timer <-chan time.Time
		if due {
			timer = time.After(time.Until(at))
		}
		select {
		case <-s.pictures.woken:
			continue
		case <-timer:
		case <-ctx.Done():
			return
		}
		select {
		case s.l.picturing <- struct{}{}:
		case <-ctx.Done():
			return
		}
		s.picture(ctx)
		<-s.l.picturing
	}
}

// picture takes one, and stores it if the lease is still the session's.
func (s *session) picture(ctx context.Context) {
	s.pictures.mu.Lock()
	d := s.pictures.demand
	now := time.Now()
	s.pictures.demand.asked, s.pictures.demand.changed, s.pictures.demand.last = false, time.Time{}, now
	s.pictures.mu.Unlock()

	url, image, missing := s.shoot(ctx)
	if missing != "" && missing != isSensitive {
		s.again(now)
	}
	if missing != "" && !d.asked || ctx.Err() != nil {
		s.l.metrics.pictures.WithLabelValues("missing").Inc()
		s.log.Debug().Str("why", missing).Msg("no picture was taken")
		return
	}
	m := s.l.manifest(s.granted, now.UTC())
	m.SessionID, m.OldWorkerID, m.OldTaskID, m.LeaseToken = s.id, s.manifest.WorkerID, s.manifest.TaskID, uint64(s.token)
	m.LastKnownURL, m.LastKnownStep, m.ProfileDir = url, d.step, s.path
	if d.asked {
		m.Checkpoint = d.checkpoint
	}
	ctx, cancel := context.WithTimeout(ctx, pictureStore)
	defer cancel()
	defer context.AfterFunc(s.holding.Context(), cancel)()
	err := s.holding.Fence().Check()
	if err != nil {
		return // its session is about to end
	}
	p, err := s.l.o.Archive.PutPicture(ctx, m, image, missing)
	// A picture that was on its way when the lease was lost does not count.
	if err = errors.Join(err, s.holding.Fence().Check()); err != nil {
		s.l.metrics.pictures.WithLabelValues("not_stored").Inc()
		s.log.Warn().Err(err).Msg("picture not stored")
		s.pictures.undropped = lastOf(append(s.pictures.undropped, p))
		s.again(now)
		return
	}
	s.l.metrics.pictures.WithLabelValues("stored").Inc()
	s.log.Debug().Str("evidence", p.EvidenceID).Int("bytes", len(image)).Str("checkpoint", m.Checkpoint).Dur("took", time.Since(now)).Msg("picture stored")
	named, err := json.Marshal(p)
	if err == nil {
		err = s.record(checkpoint.Entry{Kind: checkpoint.KindPicture, Name: m.Checkpoint, Data: named})
	}
	if err != nil { // record has said so
		s.drop(ctx, p)
		return
	}
	var rest []evidence.Picture
	s.pictures.kept, rest = evidence.SplitPictures(append(s.pictures.kept, p))
	s.drop(ctx, rest...)
}

// again has what could not be pictured tried with the next change's picture.
func (s *session) again(now time.Time) {
	s.pictures.mu.Lock()
	defer s.pictures.mu.Unlock()
	if d := &s.pictures.demand; d.interval > 0 && d.changed.IsZero() {
		d.changed = now
	}
}

// isSensitive is why a checkpoint on a sensitive place has no image.
const isSensitive = "the page or the step is sensitive: it is pictured only when its session is lost"

// shoot asks the page that did something last what it shows, unless that is no
// picture to have lying about.
func (s *session) shoot(ctx context.Context) (url string, image []byte, missing string) {
	e := s.open.live.eyes
	page, ok := e.primary()
	if !ok {
		return "", nil, "no page is open"
	}
	task := taskOf(s.manifest, s.granted)
	sensitive := func() bool {
		s.pictures.mu.Lock()
		defer s.pictures.mu.Unlock()
		return s.pictures.demand.sensitive || s.pictures.demand.frames[page.TargetID] || recovery.SensitiveURL(page.URL, task)
	}
	if sensitive() {
		return page.URL, nil, isSensitive
	}
	image, missing = capture.TakePicture(ctx, e.observer, page)
	// What it shows may be where the page, or a frame in it, went meanwhile, which the
	// eyes may not have read yet: Chrome itself is asked. What the page's process said
	// before comes before its answer.
	var now struct {
		TargetInfo struct {
			URL string `json:"url"`
		} `json:"targetInfo"`
	}
	short, cancel := context.WithTimeout(ctx, pictureAsk)
	defer cancel()
	if err := e.observer.Call(short, page.SessionID, "Page.getFrameTree", nil, nil); err != nil {
		return page.URL, nil, "the page is gone: " + err.Error()
	}
	if err := e.observer.Call(short, "", "Target.getTargetInfo", map[string]any{"targetId": page.TargetID}, &now); err != nil {
		return page.URL, nil, "the page is gone: " + err.Error()
	}
	if err := e.catchUp(short); err != nil {
		return page.URL, nil, "what the page did last is not known: " + err.Error()
	}
	if page.URL = now.TargetInfo.URL; sensitive() {
		return page.URL, nil, isSensitive
	}
	return page.URL, image, missing
}

// catchUp returns when everything is recorded that came before it was called.
func (e *eyes) catchUp(ctx context.Context) error {
	for all := e.observer.Queued(); e.followed.Load() < all; {
		if err := nap(ctx); err != nil {
			return err
		}
	}
	return nil
}

// drop removes pictures from the store, and those that it did not remove before.
func (s *session) drop(ctx context.Context, pictures ...evidence.Picture) {
	all := slices.Concat(s.pictures.undropped, pictures)
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pictureStore)
	defer cancel()
	s.pictures.undropped = nil
	if err := s.l.o.Archive.DropPictures(ctx, s.profile, all...); err != nil {
		s.log.Debug().Err(err).Msg("pictures not removed yet")
		s.pictures.undropped = lastOf(all)
	}
}

func lastOf(pictures []evidence.Picture) []evidence.Picture {
	return pictures[max(0, len(pictures)-maxUndropped):]
}

// forgetPictures removes what the session has in the store for no use: everything
// where it ended in order, since its bundle shows how. It comes after endPictures, and
// nobody waits for it.
func (s *session) forgetPictures(inOrder bool) {
	var all []evidence.Picture
	if inOrder {
		all = s.pictures.kept
	}
	s.l.work.Go(func() { s.drop(context.Background(), all...) })
}

// picturesIn are the pictures that a journal knows and that are kept.
func picturesIn(entries []checkpoint.Entry) []evidence.Picture {
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
