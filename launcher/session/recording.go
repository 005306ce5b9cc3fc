package session

import (
	"context"
	"sync/atomic"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/site"
	"leasehold/evidence/capture"
	"leasehold/evidence/redact"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/recovery"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// recording keeps what is seen and reported in a session: in its journal, in the lease's record
// as far as that shows it, and in its pictures. Its methods add and entries may be called
// concurrently.
type recording struct {
	*terms
	journalPath string
	life        *life
	file        *kept
	people      byPersons
	browser     func() *browser.Browser
	pictured    func(checkpoint.Entry) // for an entry that may cause a picture
	report      func(lease.Progress)   // into the lease's record
	safe        func(checkpoint.Entry) // for a checkpoint that is safe
	named       func()                 // tells the page monitor that a checkpoint is named
	resumed     *checkpoint.Entry      // from which the task goes on; nil: it begins anew
	journal     *checkpoint.Journal    // nil before open
	lost        atomic.Pointer[error]  // why the journal did not take an entry last; nil: it has taken all
}

// byPersons is what a recording asks of the people of its session.
type byPersons interface {
	// person is who has the session by hand; nil: nobody.
	person() *api.Person
	// noteActs notes the gathered acts of persons.
	noteActs()
}

func newRecording(h *Registry, t *terms, l *life, f *kept, people byPersons, b func() *browser.Browser, pictured func(checkpoint.Entry), report func(lease.Progress)) *recording {
	return &recording{
		terms: t, journalPath: h.o.Files.Journal(t.id), life: l, file: f, people: people, browser: b, pictured: pictured, report: report,
		named: func() { b().Monitor().Checkpointed() },
	}
}

// open opens the session's journal, if it is not open. It continues a journal that an earlier
// launcher kept.
func (r *recording) open() error {
	if r.journal != nil {
		return nil
	}
	var err error
	r.journal, err = checkpoint.Open(r.journalPath)
	return err
}

// resume begins the journal of a session whose task resumes with the checkpoint: if the session is lost
// again, its task may go on from there as if the session had named it. The checkpoint is on the disk before
// the session is granted.
func (r *recording) resume() error {
	if r.resumed == nil {
		return nil
	}
	if err := r.open(); err != nil {
		return err
	}
	e := *r.resumed
	e.At, e.Token = time.Now().UTC(), uint64(r.token)
	_, err := r.journal.Append(e)
	return err
}

// begin opens the journal of a new session.
func (r *recording) begin() error {
	if err := r.open(); err != nil {
		return err
	}
	_ = r.add(checkpoint.Entry{Kind: checkpoint.KindStart, Name: r.manifest.TaskID, Text: r.manifest.WorkerID})
	return nil
}

// entries are what the journal has. It is open.
func (r *recording) entries() []checkpoint.Entry { return r.journal.Entries() }

// settle returns when everything that the page monitor saw before the call is in the journal. An
// error says that some of it may be missing.
func (r *recording) settle() error {
	b := r.browser()
	if !b.Driven() {
		return nil
	}
	ctx, cancel := capture.Patience(context.Background(), askTimeout)
	defer cancel()
	return b.Monitor().Reported(ctx)
}

// settled are the entries, with what the page monitor saw before the call. Where some of that
// may be missing, or the journal did not take an entry, an entry says so.
func (r *recording) settled() []checkpoint.Entry {
	err := r.settle()
	entries := r.entries()
	omitted := func(why string, err error) {
		entries = append(entries, checkpoint.Entry{ // entries has no room: this makes a copy
			Kind: checkpoint.KindOmitted, Name: string(checkpoint.KindRequest), At: time.Now().UTC(), Token: uint64(r.token),
			Text: why + err.Error(),
		})
	}
	if lost := r.lost.Load(); lost != nil {
		omitted("an entry could not be written: ", *lost)
	}
	if err != nil {
		omitted("what the page monitor saw last did not reach the journal: ", err)
	}
	return entries
}

// sum is the hash of the journal; empty if it is not open.
func (r *recording) sum() string {
	if r.journal == nil {
		return ""
	}
	return checkpoint.Sum(r.entries())
}

// close closes the journal, if it is open.
func (r *recording) close() error {
	if r.journal == nil {
		return nil
	}
	return r.journal.Close()
}

// latest brings a record up to what the journal knows, if it is open.
func (r *recording) latest(record lease.Record) lease.Record {
	if r.journal == nil {
		return record
	}
	return recovery.Latest(record, r.journal.Entries())
}

// add puts an entry into the journal, and the part that the lease's record shows into the next
// renewal. An entry that could not be written counts as something that was not observed.
func (r *recording) add(e checkpoint.Entry) error {
	var first func()
	if e.Kind == checkpoint.KindCheckpoint { // what a person did comes before it
		r.people.noteActs()
		// The monitor reports once what a page does again and again. What it reports anew because of the
		// checkpoint has to come after it, and it must leave out nothing that comes while the disk takes it.
		first = r.named
	}
	if e.Token = uint64(r.token); e.At.IsZero() { // the page monitor's entries come with their time
		e.At = time.Now().UTC()
	}
	task := r.task()
	if e.Kind == checkpoint.KindFrame {
		if !findings.SensitiveFrame(e.URL, e.Text, task) {
			return nil // pages have them by the dozen
		}
		e.Sensitive, e.Text = true, ""
	}
	if p := r.people.person(); e.Kind == checkpoint.KindTyped && p != nil {
		e.Person, e.Principal = p.Name, p.Principal
	}
	if e.URL != "" { // what makes it sensitive may not be stored
		sensitive := findings.SensitiveURL
		if e.Declared != "" || e.Known == site.Read || e.Shape != "" && task.Sites.Covers(e.Shape, e.URL, e.Plain) { // what its owner says of it goes before the usual words
			sensitive = findings.NamedSensitive
		}
		e.Sensitive = e.Sensitive || sensitive(e.URL, task)
		e.URL = redact.URL(e.URL)
	}
	e.Page, e.Asked = checkpoint.Clip(redact.URL(e.Page)), checkpoint.Clip(redact.URL(e.Asked))
	e.URL, e.Name, e.Action, e.Text = checkpoint.Clip(e.URL), checkpoint.Clip(e.Name), checkpoint.Clip(e.Action), checkpoint.Clip(e.Text)
	e, err := r.journal.AppendAfter(first, e)
	if err != nil {
		r.life.unlessOver(func() {
			r.log.Error().Err(err).Msg("journal entry lost")
			r.lost.Store(&err)
			r.file.change(func(f *sessionfile.File) { f.Unseen = true })
		})
		return err
	}
	r.pictured(e)
	var p lease.Progress
	switch e.Kind {
	case checkpoint.KindURL:
		p.LastKnownURL = e.URL
	case checkpoint.KindStep:
		p.LastKnownStep = e.Name
	case checkpoint.KindCheckpoint:
		if e.Safe {
			r.safe(e)
			p.LastSafeCheckpoint = e.Name
		}
	default:
		return nil
	}
	r.report(p)
	return nil
}
