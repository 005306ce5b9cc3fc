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
	"leasehold/checkpoint/site"
	"leasehold/internal/durable"
	"leasehold/internal/signed"
	"leasehold/launcher/api"
	"leasehold/launcher/recovery/findings"
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
	c, shown := s.closedWith(r, closeProblem), api.Inspection{}
	s.judged = c
	found := s.inspect(c, &shown)
	s.span.Step("decide")
	found, decided := s.check(c, &shown, found, table.Decide(found, s.r.o.ReviewWhen...))
	err = s.r.saveInspection(r, found, decided, shown)
	switch {
	case err != nil && decided.Outcome != table.ManualReview:
		return "", fmt.Errorf("profile %s: it is not let go while what was found cannot be kept: %w", s.Profile, err)
	case err != nil: // a person has the evidence, and the reasons in the record
		s.Log.Error().Err(err).Msg("inspection not kept")
	}
	if err := s.keepPast(found, decided); err != nil {
		s.Log.Warn().Err(err).Msg("what a change of a file about its sites would have decided cannot be told of this incident")
	}
	sum := checkpoint.Summarize(c.Journal)
	verdict := lease.Verdict{Decision: decided.Outcome, Reasons: decided.Reasons, Version: table.Version, Cooldown: pauseFor(s.r.o.Cooldown, findings.WaitUntil(sum, c.Task()), time.Now())}
	if decided.Outcome == table.Resume {
		verdict.ResumeFrom, verdict.Checkpoint = cmp.Or(sum.SafeStep, sum.LastSafe.Name), sum.LastSafe.Name
	}
	r, err = s.swap(func(r lease.Record) (lease.Record, error) {
		return r.Checked(s.signedIn, time.Now()).Decide(verdict, time.Now())
	})
	if err == nil {
		err = s.raiseFloor(r)
	}
	if err != nil {
		return "", err
	}
	s.believe()
	if s.answers != nil {
		if err := s.answers(); err != nil {
			s.Log.Warn().Err(err).Msg("the next answers are compared with older ones, or with none")
		}
	}
	s.r.recoveries.WithLabelValues(decided.Outcome).Inc()
	s.span.Set("decision", decided.Outcome)
	s.Log.Info().Str("decision", decided.Outcome).Strs("reasons", decided.Reasons).Str("state", string(r.State)).Msg("recovery decided")
	return fmt.Sprintf("lost (%s), recovered: %s", s.File.Reason, decided.Outcome), nil
}

// closedWith is what the witnesses are asked about. problem is why the browser was not closed in
// order, or nil.
func (s *steps) closedWith(r lease.Record, problem error) Closed {
	s.store()
	return Closed{
		Record: r, File: s.File, Lost: s.Lost, Profile: s.Profile, Path: s.Path, Lock: s.Lock, Problem: problem, Journal: s.journals(),
		Unseen: s.File.Unseen || slices.ContainsFunc(s.Lost, func(run sessionfile.LostRun) bool { return run.File.Unseen }), Sites: s.r.o.Sites.Book(),
	}
}

// inspect answers every question of an inspection, after the browser is closed.
func (s *steps) inspect(c Closed, shown *api.Inspection) table.Inspection {
	facts := s.leaseFacts(c.Record)
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	for _, w := range s.r.o.Witnesses(s.Browser) {
		facts = append(facts, w.Facts(ctx, c, shown)...)
	}
	return append(append(facts,
		table.Fact{Name: table.EvidenceStored, Answer: table.Is(s.sealed()), How: "evidence " + cmp.Or(s.File.Evidence.EvidenceID, "unknown")},
		s.reviewFlag(c.Record),
	), unchecked(c, "")...)
}

func (s *steps) leaseFacts(r lease.Record) table.Inspection {
	return table.Inspection{
		{Name: table.LeaseExpired, Answer: table.Is(s.File.Reason == api.ReasonLeaseLost || s.File.Reason == api.ReasonObserved), How: "the session ended with " + s.File.Reason},
		{Name: table.ChangedBySwap, Answer: table.Yes, How: "each state was stored over the revision before it"},
		{Name: table.TokenAdvanced, Answer: table.Is(r.Token > s.File.Token), How: fmt.Sprintf("token %d, the worker had %d", r.Token, s.File.Token)},
		{Name: table.WorkerSilent, Answer: table.Yes, How: "its connections are ended and its capability is dead"},
		{Name: table.LateHeartbeat, Answer: table.Is(s.r.o.WroteLate(s.File.SessionID)), How: "writes with the old token, which are refused"},
	}
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
		how := "what this host kept of the profile cannot be believed: " + r.Reason
		if s.disbelief != nil {
			how += ": " + s.disbelief.Error()
		}
		return table.Fact{Name: table.ReviewFlag, Answer: table.Yes, How: how}
	}
	if r.Reason == lease.ReasonContested {
		return table.Fact{Name: table.ReviewFlag, Answer: table.Yes, How: fmt.Sprintf("launchers %s and %s are both known as its home: the lease store had forgotten the first", r.Home, r.OtherHome)}
	}
	if r.ByHand != nil {
		return table.Fact{Name: table.ReviewFlag, Answer: table.Yes, How: fmt.Sprintf("%s used the profile by hand", r.ByHand.Holder)}
	}
	return table.Fact{Name: table.ReviewFlag, Answer: table.No, How: "no review is pending on the record"}
}

// journals are the entries of all runs that the case is about, merged by time. Each run's
// entries keep their order, even if the clock was set back. Of several runs, no checkpoint is safe: that of one
// says nothing of what another one met, such as a site that refused it.
func (s *steps) journals() []checkpoint.Entry {
	runs := [][]checkpoint.Entry{s.Journal()}
	for _, run := range s.Lost {
		runs = append(runs, run.Journal)
	}
	all := merge(runs)
	if len(s.Lost) > 0 {
		for i := range all { // they are copies
			all[i].Safe = false
		}
	}
	return all
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

// Task is what is known of the tasks of a session and of the runs that were lost with it. If there
// are several, none can be resumed, since the profile can go on with only one.
func (c Closed) Task() findings.Task {
	t := TaskOf(c.File.Manifest, c.Record, c.Sites)
	t.Unchanged, t.UnchangedSinceSafe = c.Unchanged, c.UnchangedSinceSafe
	t.Resumable = t.Resumable && len(c.Lost) == 0
	t.BeganAt = c.File.BeganAt()
	for _, run := range c.Lost {
		t.BeganAt = cmp.Or(t.BeganAt, run.File.BeganAt())
		other := TaskOf(run.File.Manifest, lease.Record{}, nil)
		t.ExpectedDomains = slices.Concat(t.ExpectedDomains, other.ExpectedDomains)
		t.SensitiveURLs = slices.Concat(t.SensitiveURLs, other.SensitiveURLs)
		t.SensitiveWords = slices.Concat(t.SensitiveWords, other.SensitiveWords)
	}
	if len(t.ExpectedDomains) == 0 {
		t.ExpectedDomains = c.Record.ExpectedDomains
	} else {
		t.ProfileDomains = c.Record.ExpectedDomains
	}
	return t
}

// TaskOf is what a manifest, its profile, and what is known of sites say about a task.
func TaskOf(m api.Manifest, r lease.Record, sites *site.Book) findings.Task {
	return findings.Task{
		Resumable: m.Resumable, ExpectedDomains: m.ExpectedDomains,
		SensitiveURLs:  slices.Concat(r.SensitiveURLs, m.SensitiveURLs),
		SensitiveWords: findings.Words(r.SensitiveWords, m.SensitiveWords),
		Harmless:       r.HarmlessRequests, Sites: sites,
	}
}

// pauseFor is the pause after a recovery: the configured one, or a longer one if a site asked
// the client to wait.
func pauseFor(configured time.Duration, siteWaits, now time.Time) time.Duration {
	return max(configured, siteWaits.Sub(now))
}

// keptInspection is the inspection of a profile's last recovery on this host, as its file has it.
type keptInspection struct {
	api.Inspection
	// RecoveryStartedAt is when that recovery began, as its record says.
	RecoveryStartedAt time.Time `json:"recovery_started_at,omitzero"`
}

// isOf tells whether the inspection may be shown with the record: it was made in the recovery that the
// record is about, or the record is about none, since its last session is not lost.
func (k keptInspection) isOf(rec lease.Record) bool {
	began := rec.RecoveryStartedAt
	if rec.State == lease.Held && rec.ByHand != nil && rec.ByHand.Review != nil { // it is open again afterwards
		began = rec.ByHand.Review.RecoveryStartedAt
	}
	if began.IsZero() {
		return rec.State != lease.SuspectedStale
	}
	return k.RecoveryStartedAt.Equal(began)
}

// inspectionPath is where the inspection of a profile's last recovery is kept.
func (r *Recoverer) inspectionPath(profile string) string {
	return filepath.Join(r.o.DataDir, "inspections", lease.FileName(profile)+".json")
}

// saveInspection keeps what was found and decided in the recovery that the record is about. shown is
// what a person is shown besides.
func (r *Recoverer) saveInspection(rec lease.Record, found table.Inspection, d table.Decision, shown api.Inspection) error {
	profile := rec.ProfileID
	i := keptInspection{Inspection: shown, RecoveryStartedAt: rec.RecoveryStartedAt}
	i.Facts, i.Decision, i.Reasons, i.DecisionVersion = []api.Fact{}, d.Outcome, d.Reasons, table.Version
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
	i, err := r.Inspection(rec)
	if err != nil {
		return ""
	}
	return i.ForeignLock
}

// Inspection returns what the last recovery of the record's profile found here. It has no facts if
// there was no recovery, if the record is about another one, or if somebody else wrote the file, which
// is then given as the reason.
func (r *Recoverer) Inspection(rec lease.Record) (api.Inspection, error) {
	none := api.Inspection{Facts: []api.Fact{}, Reasons: []string{}}
	profile := rec.ProfileID
	b, err := os.ReadFile(r.inspectionPath(profile))
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	var kept keptInspection
	if err == nil {
		b, err = r.o.Key.Open(signed.Inspection, profile, b)
	}
	if err == nil {
		err = json.Unmarshal(b, &kept)
	}
	if errors.Is(err, signed.ErrNotAuthentic) {
		none.Reasons = append(none.Reasons, fmt.Sprintf("what was kept of the inspection cannot be believed: %v", err))
		return none, nil
	}
	if err != nil {
		return kept.Inspection, fmt.Errorf("inspection of %s: %w", profile, err)
	}
	if !kept.isOf(rec) {
		return none, nil
	}
	return kept.Inspection, nil
}
