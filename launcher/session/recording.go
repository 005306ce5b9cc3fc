package session

import (
	"time"

	"leasehold/checkpoint"
	"leasehold/evidence/redact"
	"leasehold/launcher/recovery"
	"leasehold/launcher/recovery/decision"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// recording keeps what is seen and said in a session: in its journal, in the lease's
// record as far as that shows it, and in its pictures. Its add and entries may be called
// concurrently.
type recording struct {
	s       *Session
	journal *checkpoint.Journal // nil before open
}

// open opens the session's journal, if it is not open. One that an earlier launcher kept
// goes on.
func (r *recording) open() error {
	if r.journal != nil {
		return nil
	}
	var err error
	r.journal, err = checkpoint.Open(r.s.h.o.Files.Journal(r.s.id))
	return err
}

// begin opens the journal of a new session.
func (r *recording) begin() error {
	if err := r.open(); err != nil {
		return err
	}
	r.s.Note(checkpoint.Entry{Kind: checkpoint.KindStart, Name: r.s.manifest.TaskID, Text: r.s.manifest.WorkerID})
	return nil
}

// entries are what the journal has. It is open.
func (r *recording) entries() []checkpoint.Entry { return r.journal.Entries() }

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

// add puts an entry into the journal, and what the lease's record shows of it into the
// next renewal. An entry that could not be written counts as something that nobody saw.
func (r *recording) add(e checkpoint.Entry) error {
	s := r.s
	if e.Kind == checkpoint.KindCheckpoint { // what a person did comes before it
		s.people.noteActs()
	}
	e.At, e.Token = time.Now().UTC(), uint64(s.token)
	task := s.task()
	if e.Kind == checkpoint.KindFrame {
		if !decision.SensitiveFrame(e.URL, e.Text, task) {
			return nil // pages have them by the dozen
		}
		e.Sensitive, e.Text = true, ""
	}
	if p := s.people.person(); e.Kind == checkpoint.KindTyped && p != nil {
		e.Person, e.Principal = p.Name, p.Principal
	}
	if e.URL != "" { // what makes it sensitive may not be stored
		e.Sensitive = e.Sensitive || decision.SensitiveURL(e.URL, task)
		e.URL = redact.URL(e.URL)
	}
	e.Page, e.Asked = checkpoint.Clip(redact.URL(e.Page)), checkpoint.Clip(redact.URL(e.Asked))
	e.URL, e.Name, e.Action, e.Text = checkpoint.Clip(e.URL), checkpoint.Clip(e.Name), checkpoint.Clip(e.Action), checkpoint.Clip(e.Text)
	if _, err := r.journal.Append(e); err != nil {
		s.life.unlessOver(func() {
			s.log.Error().Err(err).Msg("journal entry lost")
			s.file.change(func(f *sessionfile.File) { f.Unseen = true })
		})
		return err
	}
	s.pictures.note(e)
	var p lease.Progress
	switch e.Kind {
	case checkpoint.KindURL:
		p.LastKnownURL = e.URL
	case checkpoint.KindStep:
		p.LastKnownStep = e.Name
	case checkpoint.KindCheckpoint:
		s.browser.Monitor().Checkpointed()
		if e.Safe {
			p.LastSafeCheckpoint = e.Name
		}
	default:
		return nil
	}
	s.holding.Report(p)
	return nil
}
