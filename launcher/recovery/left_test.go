package recovery_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	. "leasehold/launcher/recovery"
	"leasehold/launcher/recovery/table"
	"leasehold/lease"
)

// backHome is a profile that this launcher left to another one, whose home a person made it
// again, by a review: the directory is still left.
func backHome(w *world) lease.Record {
	w.t.Helper()
	w.must(w.lock.Depart(profiledir.Departure{Home: "far", Token: token + 1, At: time.Now()}))
	r := w.leases.record()
	r.State, r.Home, r.Token, r.HomeToken, r.Runs = lease.Available, launcher, token+3, token+3, nil
	return r
}

// TestAProfileThatCameBackWithoutItsDirectoryIsHealed, by what was seen of it since, and not
// by what is kept beside the directory that was left.
func TestAProfileThatCameBackWithoutItsDirectoryIsHealed(t *testing.T) {
	t.Parallel()
	for name, remembered := range map[string]bool{"forgotten altogether": false, "another launcher remembers it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.leases.Write = nil
			r := backHome(w)
			w.remembers(r)
			clear(w.leases.Records)
			if remembered {
				recalled, err := lease.Record{}.Recall(r.Known(), "far", r.Token, r.Sequence, time.Now())
				w.must(err)
				w.leases.Put(recalled)
			}
			if forgot, home, err := w.r.Forgot(w.recordOrNone()); !forgot || err != nil {
				t.Errorf("forgot: %v, and its home is %q: %v", forgot, home, err)
			}
			got, err := w.r.Heal(t.Context(), profile)
			w.must(err)
			if got.State != lease.Available || got.Home != launcher || got.Token != r.Token || got.HomeToken != r.HomeToken || got.RememberedBy != "" || got.MaxActiveRuns != r.MaxActiveRuns {
				t.Errorf("%+v", got)
			}
			if forgot, _, err := w.r.Forgot(got); forgot || err != nil {
				t.Errorf("it is forgotten still: %v", err)
			}
		})
	}
}

// TestAProfileThatCameBackAndIsNotBelievedStaysHere: the record that sends it to a person says since when this
// launcher is its home. Otherwise the directory that was left here before would say that another one is.
func TestAProfileThatCameBackAndIsNotBelievedStaysHere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.leases.Write = nil
	r := backHome(w)
	clear(w.leases.Records)
	seen := w.rosterOf(r)
	w.r = w.recoverer(func(o *Options) { o.Roster, o.Stored = seen, func(string) lease.Token { return r.Token + 1 } })
	got, err := w.r.Heal(t.Context(), profile)
	w.must(err)
	if got.Reason != lease.ReasonRolledBack || got.HomeToken != r.HomeToken {
		t.Errorf("%+v", got)
	}
	seen.See(got)
	if _, home, err := w.r.Forgot(got); home != "" || err != nil {
		t.Errorf("its home is %q: %v", home, err)
	}
}

// TestAProfileWhoseDirectoryWasLeftGoesToAPerson: its recovery comes to an end, although the
// floor of the directory is not raised any more.
func TestAProfileWhoseDirectoryWasLeftGoesToAPerson(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tidy()
	floor, err := w.root.Floor(profile)
	w.must(err)
	home := backHome(w)
	w.remembers(home)
	w.restate(func(r lease.Record) (lease.Record, error) {
		r.Home, r.Token, r.HomeToken = home.Home, home.Token, home.HomeToken
		return r, nil
	})
	c := w.caseOf(Recover)
	c.File.Token = home.Token
	if _, err := w.r.Run(c); err != nil {
		t.Fatal(err)
	}
	if r := w.leases.record(); r.State != lease.ManualReview || r.Token != home.Token+1 || r.Home != launcher {
		t.Errorf("%+v", r)
	}
	if now, err := w.root.Floor(profile); now != floor || err != nil {
		t.Errorf("the floor of the directory that was left went from %d to %d: %v", floor, now, err)
	}
	i, err := w.r.Inspection(w.leases.record())
	w.must(err)
	flag := slices.IndexFunc(i.Facts, func(f api.Fact) bool { return f.Name == table.ReviewFlag })
	if f := i.Facts[flag]; f.Answer != "yes" || !strings.Contains(f.How, "was left to launcher far") {
		t.Errorf("why: %+v", f)
	}
}

// TestAProfileThatLeftIsNotHealedByItsOldHome, whatever the store forgot; and one that came back is
// not held against the floor of the directory that was left, however old that is.
func TestAProfileThatLeftIsNotHealedByItsOldHome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.leases.Write = nil
	r := backHome(w)
	clear(w.leases.Records)
	if forgot, home, err := w.r.Forgot(w.recordOrNone()); forgot || home != "far" || err != nil {
		t.Errorf("of a profile that left: forgot %v, its home is %q: %v", forgot, home, err)
	}
	r.Token, r.HomeToken = r.Token+20, r.HomeToken+5
	w.remembers(r)
	w.leases.Put(r)
	if forgot, _, err := w.r.Forgot(r); forgot || err != nil {
		t.Errorf("of one that came back: forgot %v: %v", forgot, err)
	}
}
