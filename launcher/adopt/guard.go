package adopt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/internal/boottime"
	"leasehold/internal/signed"
	"leasehold/launcher/accountcheck"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/chrome"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/readers"
	"leasehold/launcher/recovery"
	"leasehold/launcher/session"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/witness"
	"leasehold/lease"
)

// GuardOptions are what Guard works with. All fields but Clock and Processes are needed.
type GuardOptions struct {
	ID      string // the launcher's
	DataDir string
	Root    *profiledir.Root
	Key     *signed.Key // signs what the launcher keeps on disk
	// Gone is closed when the launcher has ended.
	Gone <-chan struct{}
	// Timeout is how long its browsers wait for the next launcher, on the boot-time clock.
	Timeout time.Duration
	// Archive opens the evidence archive. It is called only when it is needed, since the spool
	// belongs to the launcher.
	Archive func() (*evidence.Archive, error)
	Clock   boottime.Clock // nil: the host's
	// Processes runs the processes of browsers; nil: browser.Kernel does.
	Processes browser.Processes
	Log       zerolog.Logger
}

const (
	// orphanPoll is the time between two looks at the browsers of a launcher
	// that is gone.
	orphanPoll = time.Second
	// orphanPause is the time between two tries to end them.
	orphanPause = 10 * time.Second
)

// Guard bounds the life of browsers whose launcher is gone. It runs in a process of its own,
// and waits for the launcher's end. Then it kills the browsers of ephemeral sessions at once,
// and removes their copies, since no launcher resumes them. Each other browser waits for the
// next launcher, for the timeout, as long as the kernel's lock shows that no launcher has taken
// it. After that the guard takes the browser's evidence, closes it in order, and leaves the
// rest to the next launcher. A browser whose files are not there any more is killed then. One guard watches for all:
// where another has the data directory already, Guard ends once the copies are removed.
func Guard(ctx context.Context, o GuardOptions) error {
	if o.Clock == nil {
		o.Clock = boottime.Now
	}
	if o.Processes == nil {
		o.Processes = browser.Kernel{}
	}
	select {
	case <-o.Gone:
	case <-ctx.Done():
		return ctx.Err()
	}
	copies, err := readers.FindLeft(readers.Options{DataDir: o.DataDir, Profiles: o.Root, Key: o.Key, Processes: o.Processes, Log: o.Log})
	if err != nil { // the next launcher removes them
		o.Log.Error().Err(err).Msg("copies of profiles may be left")
	}
	alone, lock := orphaned{}, watchLock{dir: o.DataDir}
	defer lock.release()
	look := func() (map[string]orphan, error) {
		return orphans(o.Root, sessionfile.NewDir(o.DataDir, o.Key), o.Processes, alone)
	}
	for {
		discarding, err := copies.Discard(ctx)
		if err != nil {
			o.Log.Error().Err(err).Msg("copies of profiles are left: it is tried again")
		}
		var left map[string]orphan
		another := lock.take(o.Log)
		if err = nil; !another {
			left, err = look()
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return err // the directory itself is gone, and no browser is known of
		case err == nil && len(left) == 0 && discarding == 0:
			if another {
				return nil
			}
			lock.release()
			// A guard that found the lock taken has ended, and what its launcher left may be newer than the last look.
			if newer, err := look(); err == nil && len(newer) == 0 {
				return nil
			}
		}
		due, next := []string(nil), orphanPoll
		if left != nil {
			due, next = alone.due(left, o.Clock(), o.Timeout)
		}
		pause := min(orphanPoll, next+time.Millisecond)
		if err != nil {
			o.Log.Error().Err(err).Msg("it is not known which browsers are left: it is tried again")
			pause = orphanPause
		}
		if len(due) > 0 {
			due, err := killWithoutFiles(ctx, o, alone, due)
			if err := errors.Join(err, endOrphans(ctx, o, due)); err != nil {
				o.Log.Error().Err(err).Msg("browsers without a launcher are not ended: it is tried again")
				pause = orphanPause
			}
			alone.takenByGuard(due, o.Root)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watchLock is the lock of a data directory that the one guard has that watches what launchers left there. The kernel
// gives it up when that guard ends, however it ends.
type watchLock struct {
	dir  string
	file *os.File // nil: this guard has not the lock
	told bool     // that there is none
}

// take takes the lock, unless this guard has it, and tells whether another one has it. Where the file system has no
// such lock, each guard watches.
func (l *watchLock) take(log zerolog.Logger) (another bool) {
	if l.file != nil {
		return false
	}
	f, err := os.Open(l.dir)
	if err == nil {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			l.file = f
			return false
		}
		_ = f.Close()
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true
	}
	if !l.told {
		l.told = true
		log.Warn().Err(err).Str("dir", l.dir).Msg("the data directory cannot be locked: other guards may watch it, too")
	}
	return false
}

// release gives the lock up, if this guard has it.
func (l *watchLock) release() {
	if l.file != nil {
		_ = unix.Flock(int(l.file.Fd()), unix.LOCK_UN) // a process that is being started may have the file for a moment
		_ = l.file.Close()
		l.file = nil
	}
}

// orphaned is since when the browser of each profile has been without a launcher. Every browser
// has a wait of its own, because a launcher may have come back for one of them, and ended
// again, but not for another.
type orphaned map[string]wait

type wait struct {
	orphan
	since boottime.Instant
}

// orphan is a browser that no launcher has.
type orphan struct {
	running profiledir.Running
	path    string    // of its profile
	taken   time.Time // when the profile's lock was taken last
	// filesGone says that its profile's directory, or the file of its session, is not there any
	// more. No launcher finds it then.
	filesGone bool
}

// due takes in which browsers have no launcher now, and when somebody took their profiles last: a
// launcher may have come and ended between two looks. It returns those that have had none for the
// timeout, and the least time that the others still wait.
func (a orphaned) due(left map[string]orphan, now boottime.Instant, timeout time.Duration) (due []string, next time.Duration) {
	for profile := range a {
		if _, is := left[profile]; !is {
			delete(a, profile)
		}
	}
	next = timeout
	for profile, b := range left {
		since := now
		if was, known := a[profile]; known && was.taken.Equal(b.taken) {
			since = was.since
		}
		a[profile] = wait{b, since}
		if waits := timeout - now.Sub(a[profile].since); waits > 0 {
			next = min(next, waits)
		} else {
			due = append(due, profile)
		}
	}
	slices.Sort(due)
	return due, next
}

// takenByGuard takes in that the guard itself took profiles, which has not made them wait anew.
func (a orphaned) takenByGuard(profiles []string, root *profiledir.Root) {
	for _, profile := range profiles {
		if taken, err := root.Taken(profile); err == nil {
			was := a[profile]
			was.taken = taken
			a[profile] = was
		}
	}
}

// orphans returns the running browsers that a launcher of these sessions started, for one of them or
// for a session check, and that no launcher has now, by their profiles. A browser whose note cannot be
// trusted is left to the next launcher, since the note may name any process. One that was known before
// is found without its files, too. The error names what could not be read; those that were found are
// returned with it, and those that were known before and may still run. The map is nil if the profiles
// themselves are not known.
func orphans(root *profiledir.Root, c sessionfile.Dir, processes browser.Processes, known orphaned) (map[string]orphan, error) {
	ids, err := root.List()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	left := map[string]orphan{}
	var unread error
	for _, profile := range ids {
		found, is, err := orphanOf(root, c, processes, profile)
		if isUnread(err) {
			unread = errors.Join(unread, fmt.Errorf("profile %s: %w", profile, err))
			was, before := known[profile]
			found, is = was.orphan, before
		}
		if is {
			left[profile] = found
		}
	}
	for profile, was := range known {
		if _, found := left[profile]; !found && filesGone(root, c, profile, was.running) && lives(processes, was.running) && !held(root, profile) {
			was.filesGone = true
			left[profile] = was.orphan
		}
	}
	if len(left) > 0 {
		err = nil
	}
	return left, errors.Join(err, unread)
}

// orphanOf is the browser of one profile as orphans returns it, if there is one.
func orphanOf(root *profiledir.Root, c sessionfile.Dir, processes browser.Processes, profile string) (o orphan, is bool, err error) {
	running, ok, err := root.Left(profile)
	if err != nil || !ok || running.BootID != boottime.ID() {
		return o, false, err
	}
	// Without a session's file it belongs to another launcher on the same folder.
	if _, err := c.Read(running.SessionID); err != nil && !accountcheck.IsCheck(running.SessionID) {
		return o, false, err
	}
	if !lives(processes, running) {
		return o, false, nil
	}
	path, err := root.Path(profile)
	if err != nil {
		return o, false, err
	}
	taken, err := root.Taken(profile)
	if err != nil || held(root, profile) {
		return o, false, err
	}
	return orphan{running: running, path: path, taken: taken}, true, nil
}

// isUnread tells whether a file could not be read, such as for want of descriptors. That says nothing
// about it, unlike a file that is not there, or that cannot be believed.
func isUnread(err error) bool {
	_, failed := errors.AsType[syscall.Errno](err)
	return failed && !errors.Is(err, fs.ErrNotExist)
}

func held(root *profiledir.Root, profile string) bool {
	held, err := root.Held(profile)
	return err == nil && held
}

func lives(processes browser.Processes, r profiledir.Running) bool {
	return processes.Lives(chrome.Identity{PID: r.PID, StartTime: r.StartTime, BootID: r.BootID})
}

// filesGone tells whether a browser's profile, or its session's file, was removed, or its disk was
// unmounted.
func filesGone(root *profiledir.Root, c sessionfile.Dir, profile string, r profiledir.Running) bool {
	_, err := root.Path(profile)
	if err == nil && !accountcheck.IsCheck(r.SessionID) {
		_, err = c.Read(r.SessionID)
	}
	return errors.Is(err, fs.ErrNotExist) || root.There() != nil
}

// killWithoutFiles kills the browsers whose files are not there any more: there is no place for what
// they have not written yet, nor for evidence. It returns the others.
func killWithoutFiles(ctx context.Context, o GuardOptions, all orphaned, due []string) (others []string, errs error) {
	for _, profile := range due {
		left := all[profile]
		if !left.filesGone {
			others = append(others, profile)
			continue
		}
		if err := browser.KillLeft(ctx, o.Processes, left.running, left.path); err != nil {
			errs = errors.Join(errs, fmt.Errorf("profile %s: %w", profile, err))
			continue
		}
		delete(all, profile)
		o.Log.Warn().Str("profile", profile).Str("session", left.running.SessionID).Msg("no launcher came back, and the browser's files are not there any more: it is killed, without evidence")
	}
	return others, errs
}

func endOrphans(ctx context.Context, o GuardOptions, profiles []string) error {
	if len(profiles) == 0 {
		return nil
	}
	archive, err := o.Archive()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	files, jar, metrics := sessionfile.NewDir(o.DataDir, o.Key), sessionfile.NewJar(o.DataDir, o.Key), prometheus.NewRegistry()
	// Nothing that is done here needs a lease or workers.
	a := New(ctx, &work, Options{
		Root: o.Root, Files: files, Jar: jar,
		Driver:    browser.NewDriver(ctx, &work, browser.Options{Files: files, Root: o.Root, Key: o.Key, Processes: o.Processes, Log: o.Log, Metrics: metrics}),
		Recoverer: recovery.New(recovery.Options{LauncherID: o.ID, DataDir: o.DataDir, Key: o.Key, Root: o.Root, Jar: jar, Archive: archive, Witnesses: witness.List(witness.Options{Root: o.Root, Files: files, Archive: archive}), Log: o.Log, Metrics: metrics}),
		Log:       o.Log, Metrics: metrics,
	})
	defer work.Wait()
	defer cancel()
	var errs error
	for _, profile := range profiles {
		err := a.endOrphan(profile)
		if errors.Is(err, profiledir.ErrLocked) {
			continue // a launcher has taken it meanwhile
		}
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("profile %s: %w", profile, err))
		}
	}
	return errs
}

// endOrphan takes the evidence of a browser and closes it. The record, the inspection and the
// decision are left to the next launcher, which finds the bundle and the close method in the
// session file.
func (a *Adopter) endOrphan(profile string) error {
	path, err := a.o.Root.Path(profile)
	if err != nil {
		return err
	}
	_, record, err := a.o.Root.Kept(profile)
	if err != nil {
		return err
	}
	record.ProfileID = profile
	running, ok, err := a.o.Root.Left(profile)
	if err != nil || !ok {
		return err
	}
	log := a.o.Log.With().Str("profile", profile).Uint64("token", uint64(record.Token)).Str("session", running.SessionID).Logger()
	lock, b, err := a.adoptBrowser(nil, record, path, func(checkpoint.Entry) {}, log)
	if err != nil {
		return err
	}
	if b == nil {
		return lock.Unlock()
	}
	if accountcheck.IsCheck(running.SessionID) {
		return a.closeLeftCheck(running, b, lock, log)
	}
	if leftWarm(record) {
		return a.closeLeftWarm(profile, b, lock, log)
	}
	files, err := a.runsOf(record, running.SessionID)
	if err != nil {
		return errors.Join(err, b.Detach(), lock.Unlock())
	}
	f := files[0]
	record = ofRun(record, f)
	f.CloseMethod = "" // set by an earlier attempt
	save := func(of sessionfile.File) (errs error) {
		for _, file := range files {
			if file.Reason == "" {
				file.Reason = api.ReasonOrphaned
			}
			file.Unseen, file.Evidence, file.CloseMethod = true, of.Evidence, of.CloseMethod
			file.NotStored, file.CookiesLost = of.NotStored, of.CookiesLost
			errs = errors.Join(errs, a.o.Files.Save(file))
		}
		return errs
	}
	entries, err := checkpoint.Read(a.o.Files.Journal(f.SessionID))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn().Err(err).Msg("the journal cannot be read")
	}
	ended, err := a.o.Recoverer.Run(recovery.Case{
		Goal: recovery.CloseOnly, File: f, Profile: profile, Path: path, Lock: lock, Browser: witness.Of(b), Keep: session.Keeping(a.o.Jar, f.Manifest), Log: log,
		Bundle: func() *evidence.Bundle {
			bundle := a.o.Recoverer.Capture(recovery.Capture{
				Record: record, Path: path, Token: f.Token, Reason: api.ReasonOrphaned, SeenAt: f.SeenAt, Journal: entries, Browser: witness.Of(b), Final: true,
			}, log)
			bundle.SetPictures(session.PicturesIn(entries))
			return bundle
		},
		Sealed: save,
	})
	if ended.File.CloseMethod == "" {
		return errors.Join(err, lock.Unlock()) // the browser still runs
	}
	log.Warn().Str("rung", ended.File.CloseMethod).Str("evidence", ended.File.Evidence.EvidenceID).AnErr("problem", err).Msg("no launcher came back: the browser is closed")
	return errors.Join(err, save(ended.File), lock.Unlock())
}

// ofRun is the kept record of a profile, changed to be about the run with this file. The kept
// record names the run that was granted last, which may be over.
func ofRun(r lease.Record, f sessionfile.File) lease.Record {
	r.SessionID, r.OwnerWorkerID, r.TaskID, r.Principal = f.SessionID, f.Manifest.WorkerID, f.Manifest.TaskID, f.Principal
	return r
}

// runsOf reads the files of every run of a browser. Runs without a bundle come first, because
// the bundle of a run that was ending says nothing about what the others did after it. Among
// those, the run of the record's session comes first.
func (a *Adopter) runsOf(r lease.Record, started string) ([]sessionfile.File, error) {
	sessions := []string{r.SessionID, started}
	for _, run := range r.Runs {
		sessions = append(sessions, run.SessionID)
	}
	var files []sessionfile.File
	var errs error
	for i, id := range sessions {
		if id == "" || slices.Contains(sessions[:i], id) {
			continue
		}
		f, err := a.o.Files.Read(id)
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		if f.Ended == "" {
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		return nil, errors.Join(errors.New("no file of a session tells what ran there"), errs)
	}
	slices.SortStableFunc(files, func(a, b sessionfile.File) int {
		return cmp.Compare(min(len(a.Evidence.EvidenceID), 1), min(len(b.Evidence.EvidenceID), 1))
	})
	return files, nil
}
