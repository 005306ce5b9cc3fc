package recovery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/internal/durable"
	"leasehold/internal/signed"
	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/recovery/decision"
	"leasehold/launcher/recovery/table"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// inspectAndDecide gathers the facts, decides, and writes the decision into the record.
// closeProblem is why the browser was not closed in order, or nil.
func (s *steps) inspectAndDecide(closeProblem error) (string, error) {
	s.span.Step("inspect")
	r, err := s.swap(func(r lease.Record) (lease.Record, error) {
		if r.State == lease.Inspected {
			return r, errAlready
		}
		return r.Inspect(s.File.Evidence, time.Now())
	})
	if err != nil && !errors.Is(err, errAlready) {
		return "", err
	}
	if err := s.raiseFloor(r); err != nil {
		return "", err
	}
	found := s.inspect(r, closeProblem)
	s.span.Step("decide")
	found, decided := s.check(r, found, table.Decide(found, s.r.o.ReviewWhen...))
	sum, task := checkpoint.Summarize(s.journals()), s.task(r)
	err = s.r.saveInspection(s.Profile, found, decided, s.foreignLock, unsafeRequests(sum, task), typedInto(sum))
	switch {
	case err != nil && decided.Outcome != table.ManualReview:
		return "", fmt.Errorf("profile %s: it is not let go while what was found cannot be kept: %w", s.Profile, err)
	case err != nil: // a person has the evidence, and the reasons in the record
		s.Log.Error().Err(err).Msg("inspection not kept")
	}
	verdict := lease.Verdict{Decision: decided.Outcome, Reasons: decided.Reasons, Version: table.Version, Cooldown: pauseFor(s.r.o.Cooldown, decision.WaitUntil(sum, task), time.Now())}
	if decided.Outcome == table.Resume {
		verdict.ResumeFrom, verdict.Checkpoint = cmp.Or(sum.SafeStep, sum.LastSafe.Name), sum.LastSafe.Name
	}
	r, err = s.swap(func(r lease.Record) (lease.Record, error) { return r.Decide(verdict, time.Now()) })
	if err == nil {
		err = s.raiseFloor(r)
	}
	if err != nil {
		return "", err
	}
	s.r.recoveries.WithLabelValues(decided.Outcome).Inc()
	s.span.Set("decision", decided.Outcome)
	s.Log.Info().Str("decision", decided.Outcome).Strs("reasons", decided.Reasons).Str("state", string(r.State)).Msg("recovery decided")
	return fmt.Sprintf("lost (%s), recovered: %s", s.File.Reason, decided.Outcome), nil
}

// inspect answers every question of an inspection, after the browser is closed.
func (s *steps) inspect(r lease.Record, closeProblem error) table.Inspection {
	facts := s.leaseFacts(r)
	facts = append(facts, s.directoryFacts(closeProblem)...)
	sum := checkpoint.Summarize(s.journals())
	facts = append(facts, decision.InspectTask(sum, s.task(r))...)
	facts = append(facts, s.pageFacts()...)
	facts = append(facts, s.stillFacts()...)
	return append(facts, decision.Observed(sum, s.unseen()),
		s.stateChanged(s.journals()),
		table.Fact{Name: table.EvidenceStored, Answer: table.Is(s.sealed()), How: "evidence " + orUnknown(s.File.Evidence.EvidenceID)},
		s.r.screenshotKnown(s.File.Evidence.EvidenceID),
		ProxyFact(r, s.File.Manifest.ProxyID, s.File.Proxy, s.r.o.Proxies.Find(r.ProxyID), s.r.o.Proxies == nil),
		s.reviewFlag(r),
		unchecked(r),
	)
}

// leaseFacts are the facts about the lease and its worker.
func (s *steps) leaseFacts(r lease.Record) table.Inspection {
	return table.Inspection{
		{Name: table.LeaseExpired, Answer: table.Is(s.File.Reason == api.ReasonLeaseLost || s.File.Reason == api.ReasonObserved), How: "the session ended with " + s.File.Reason},
		{Name: table.ChangedBySwap, Answer: table.Yes, How: "each state was stored over the revision before it"},
		{Name: table.TokenAdvanced, Answer: table.Is(r.Token > s.File.Token), How: fmt.Sprintf("token %d, the worker had %d", r.Token, s.File.Token)},
		{Name: table.WorkerSilent, Answer: table.Yes, How: "its connections are ended and its capability is dead"},
		{Name: table.LateHeartbeat, Answer: table.Is(s.r.o.WroteLate(s.File.SessionID)), How: "writes with the old token, which are refused"},
	}
}

// directoryFacts are the facts about the browser's processes and the profile's directory.
func (s *steps) directoryFacts(closeProblem error) table.Inspection {
	s.store()
	gone := table.Fact{Name: table.BrowserGone}
	dir, err := s.r.o.Root.Inspect(s.Profile)
	users, usersErr := dir.Users()
	if err != nil {
		users, usersErr = profiledir.Processes(s.Path)
	}
	switch {
	case usersErr != nil:
		gone.Answer, gone.How = table.Unknown, usersErr.Error()
	case closeProblem != nil:
		gone.Answer, gone.How = table.Is(len(users) == 0), closeProblem.Error()
	default:
		gone.Answer = table.Is(len(users) == 0)
		gone.How = fmt.Sprintf("%d processes name the directory; it ended by %s", len(users), orUnknown(s.File.CloseMethod))
	}
	s.foreignLock = dir.Singleton.Foreign()
	facts := table.Inspection{gone, unlocked(s.Lock.Retake(), dir.Singleton)}
	if err != nil {
		return append(facts, table.Fact{Name: table.DirectoryPresent, Answer: table.Unknown, How: err.Error()})
	}
	if s.File.NotStored != "" {
		dir.ClosedCleanly = profiledir.Fact{Answer: profiledir.No, How: s.File.NotStored}
	}
	return append(facts,
		table.Fact{Name: table.ClosedCleanly, Answer: table.Answer(dir.ClosedCleanly.Answer), How: dir.ClosedCleanly.How},
		table.Fact{Name: table.DirectoryPresent, Answer: table.Answer(dir.DirectoryPresent.Answer), How: dir.DirectoryPresent.How},
		local(dir.NetworkFilesystem),
		table.Fact{Name: table.SessionState, Answer: table.Answer(dir.SessionStatePresent.Answer), How: dir.SessionStatePresent.How},
	)
}

// reviewFlag is the fact whether a person has to look: no table can judge what a person did by
// hand, or who wrote the files that this host keeps.
func (s *steps) reviewFlag(r lease.Record) table.Fact {
	if s.departed != nil {
		return table.Fact{Name: table.ReviewFlag, Answer: table.Yes, How: s.departed.Error()}
	}
	if r.Reason == lease.ReasonForeignLock {
		return table.Fact{Name: table.ReviewFlag, Answer: table.Yes, How: "Chrome's own lock in the directory named another host"}
	}
	if lease.Distrusted(r.Reason) {
		return table.Fact{Name: table.ReviewFlag, Answer: table.Yes, How: "what this host kept of the profile cannot be believed: " + r.Reason}
	}
	if r.Reason == lease.ReasonContested {
		return table.Fact{Name: table.ReviewFlag, Answer: table.Yes, How: fmt.Sprintf("launchers %s and %s are both known as its home: the lease store had forgotten the first", r.Home, r.OtherHome)}
	}
	if r.ByHand != nil {
		return table.Fact{Name: table.ReviewFlag, Answer: table.Yes, How: fmt.Sprintf("%s used the profile by hand", r.ByHand.Holder)}
	}
	return table.Fact{Name: table.ReviewFlag, Answer: table.No, How: "no review is pending on the record"}
}

// local tells whether the directory is on this host's own disk, where the kernel's lock
// and the floor prove that nobody else is on it.
func local(network profiledir.Fact) table.Fact {
	f := table.Fact{Name: table.DirectoryLocal, Answer: table.Unknown, How: network.How}
	switch network.Answer {
	case profiledir.No:
		f.Answer = table.Yes
	case profiledir.Yes:
		f.Answer = table.No
		f.How += ": locks of other hosts may not show here"
	}
	return f
}

// unlocked tells whether anybody could still be using the directory: by the kernel's lock
// first, then by Chrome's own, which is left behind when Chrome is killed.
func unlocked(kernel error, own profiledir.Singleton) table.Fact {
	f := table.Fact{Name: table.DirectoryUnlocked, Answer: table.Yes, How: "the kernel's lock is the launcher's own"}
	switch {
	case kernel != nil:
		f.Answer, f.How = table.No, kernel.Error()
	case own.Present.Answer == profiledir.No:
	case own.OwnerAlive.Answer == profiledir.No:
		f.How += "; Chrome's SingletonLock is left over: " + own.OwnerAlive.How
	default:
		f.Answer, f.How = table.Unknown, "Chrome's SingletonLock is there: "+own.OwnerAlive.How
	}
	return f
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// journals are the entries of all runs that the case is about, merged by time. Each run's
// entries keep their order, even if the clock was set back.
func (s *steps) journals() []checkpoint.Entry {
	runs := [][]checkpoint.Entry{s.Journal()}
	for _, run := range s.Lost {
		runs = append(runs, run.Journal)
	}
	return merge(runs)
}

func merge(runs [][]checkpoint.Entry) []checkpoint.Entry {
	var all []checkpoint.Entry
	for {
		next := -1
		for i, entries := range runs {
			if len(entries) > 0 && (next < 0 || entries[0].At.Before(runs[next][0].At)) {
				next = i
			}
		}
		if next < 0 {
			return all
		}
		all, runs[next] = append(all, runs[next][0]), runs[next][1:]
	}
}

// unseen tells whether for some time nobody watched the pages.
func (s *steps) unseen() bool {
	return s.File.Unseen || slices.ContainsFunc(s.Lost, func(run sessionfile.LostRun) bool { return run.File.Unseen })
}

// task is what is known of the tasks that the case is about. If there are several, none can be
// resumed, since the profile can go on with only one.
func (s *steps) task(r lease.Record) decision.Task {
	t := TaskOf(s.File.Manifest, r)
	t.Resumable = t.Resumable && len(s.Lost) == 0
	for _, run := range s.Lost {
		other := TaskOf(run.File.Manifest, lease.Record{})
		t.ExpectedDomains = slices.Concat(t.ExpectedDomains, other.ExpectedDomains)
		t.SensitiveURLs = slices.Concat(t.SensitiveURLs, other.SensitiveURLs)
		t.SensitiveWords = slices.Concat(t.SensitiveWords, other.SensitiveWords)
	}
	if len(t.ExpectedDomains) == 0 {
		t.ExpectedDomains = r.ExpectedDomains
	} else {
		t.ProfileDomains = r.ExpectedDomains
	}
	return t
}

// TaskOf is what a manifest, and its profile, say about a task.
func TaskOf(m api.Manifest, r lease.Record) decision.Task {
	return decision.Task{
		Resumable: m.Resumable, ExpectedDomains: m.ExpectedDomains,
		SensitiveURLs:  slices.Concat(r.SensitiveURLs, m.SensitiveURLs),
		SensitiveWords: decision.Words(r.SensitiveWords, m.SensitiveWords),
		Harmless:       r.HarmlessRequests,
	}
}

// stateChanged tells whether cookies or storage changed since the grant: from the
// digests in the case's bundle, and from what the monitor saw pages store.
func (s *steps) stateChanged(journal []checkpoint.Entry) table.Fact {
	f := table.Fact{Name: table.StateChanged}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	answer, how := s.r.compared(ctx, s.File.Evidence.EvidenceID)
	f.Answer, f.How = table.Answer(answer), how
	for _, e := range journal {
		if e.Kind == checkpoint.KindStorage {
			f.Answer, f.How = table.Yes, fmt.Sprintf("%s storage of %s; cookies: %s (%s)", e.Name, e.URL, answer, how)
			break
		}
	}
	if f.Answer == table.No {
		f.How = "no page changed local or session storage, and " + f.How + "; databases of pages are not watched"
		if s.unseen() {
			f.Answer, f.How = table.Unknown, "nobody watched the pages' storage while the launcher was away; cookies: "+how
		}
	}
	return f
}

// compared tells whether, according to a bundle, the account's state changed. A bundle has that
// in its manifest, since its parts may be encrypted to others. For a bundle of an earlier
// version, the parts are compared here.
func (r *Recoverer) compared(ctx context.Context, evidenceID string) (answer, how string) {
	raw, err := r.o.Archive.Manifest(ctx, evidenceID)
	if err == nil {
		m, err := evidence.Decode(evidenceID, raw)
		if err == nil && m.StateChanged != nil {
			m, _ = r.o.Archive.Opened(m)
			return m.StateChanged.Answer, cmp.Or(m.StateChanged.How, "by the digests in the bundle, which is encrypted")
		}
	}
	var parts [2][]byte
	for i, name := range []string{digestsBefore, evidence.DigestsPart} {
		// If a part cannot be read, the answer is unknown.
		parts[i], _, _ = r.o.Archive.Content(ctx, evidenceID, name)
	}
	return evidence.Changed(parts[0], parts[1])
}

// screenshotKnown tells whether a bundle has a picture of a page.
func (r *Recoverer) screenshotKnown(evidenceID string) table.Fact {
	f := table.Fact{Name: table.ScreenshotKnown, Answer: table.No, How: "evidence " + orUnknown(evidenceID)}
	if evidenceID == "" {
		return f
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	b, err := r.o.Archive.Manifest(ctx, evidenceID)
	var m evidence.Manifest
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		f.Answer, f.How = table.Unknown, f.How+" cannot be read: "+err.Error()
		return f
	}
	f.Answer = table.Is(m.LastScreenshot != "" || slices.ContainsFunc(m.Pictures, func(p evidence.Picture) bool { return p.Missing == "" }))
	return f
}

// inspectionPath is where the inspection of a profile's last recovery is kept.
func (r *Recoverer) inspectionPath(profile string) string {
	return filepath.Join(r.o.DataDir, "inspections", lease.FileName(profile)+".json")
}

func (r *Recoverer) saveInspection(profile string, found table.Inspection, d table.Decision, foreign string, sent []api.UnsafeRequest, typed []api.Typed) error {
	i := api.Inspection{
		Facts: []api.Fact{}, Decision: d.Outcome, Reasons: d.Reasons, DecisionVersion: table.Version,
		ForeignLock: foreign, UnsafeRequests: sent, Typed: typed,
	}
	for _, f := range found {
		i.Facts = append(i.Facts, api.Fact{Name: f.Name, Answer: string(f.Answer), How: f.How})
	}
	if d.Outcome == table.ManualReview {
		for _, o := range table.Against(found, r.o.ReviewWhen...) {
			i.Against = append(i.Against, api.Objection{Fact: o.Fact, Answer: string(o.Answer), Sentence: o.Sentence})
		}
	}
	b, err := json.Marshal(i)
	path := r.inspectionPath(profile)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = durable.Replace(path, r.o.Key.Sign(signed.Inspection, profile, b))
	}
	if err != nil {
		return fmt.Errorf("inspection: %w", err)
	}
	return nil
}

// ApprovedLock is the lock of Chrome's, host-pid, that the inspection showed to the person who
// then approved the profile: the person's word that its browser is gone. It is empty if nobody
// gave it.
func (r *Recoverer) ApprovedLock(rec lease.Record) string {
	if !rec.Approved() {
		return ""
	}
	i, err := r.Inspection(rec.ProfileID)
	if err != nil {
		return ""
	}
	return i.ForeignLock
}

// Inspection returns what a profile's last recovery found. It has no facts if there was no
// recovery, or if somebody else wrote the file, which is then given as the reason.
func (r *Recoverer) Inspection(profile string) (api.Inspection, error) {
	b, err := os.ReadFile(r.inspectionPath(profile))
	if errors.Is(err, fs.ErrNotExist) {
		return api.Inspection{Facts: []api.Fact{}, Reasons: []string{}}, nil
	}
	var i api.Inspection
	if err == nil {
		b, err = r.o.Key.Open(signed.Inspection, profile, b)
	}
	if err == nil {
		err = json.Unmarshal(b, &i)
	}
	if errors.Is(err, signed.ErrNotAuthentic) {
		return api.Inspection{Facts: []api.Fact{}, Reasons: []string{fmt.Sprintf("what was kept of the inspection cannot be believed: %v", err)}}, nil
	}
	if err != nil {
		return i, fmt.Errorf("inspection of %s: %w", profile, err)
	}
	return i, nil
}
