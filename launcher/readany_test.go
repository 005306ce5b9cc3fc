package launcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/launcher/snapshots"
	"leasehold/lease"
)

// readable stores a profile of another host, with a snapshot that a Chrome of this version made;
// none without one. It returns when the launcher knows of it.
func (r *reading) readable(profile, version string, change func(*lease.Record)) {
	r.t.Helper()
	must, ctx := mustIn(r.t), r.t.Context()
	rec := lease.Record{ProfileID: profile, State: lease.Available, Home: "elsewhere", Token: 7}
	rec.MaxActiveRuns, rec.Labels = 1, lease.Labels{"region": profile[:2]}
	if version != "" {
		content, err := r.store.Read(ctx, profile, userDataDir(r.t), snapshots.ReadOptions{Spool: r.t.TempDir()})
		must(err)
		made, err := r.store.Seal(ctx, content, snapshots.About{Token: 7, LauncherID: "elsewhere", ChromeVersion: version, CreatedAt: time.Now()})
		must(err)
		rec.SnapshotID, rec.SnapshotToken = made.ID, 7
	}
	if change != nil {
		change(&rec)
	}
	e, err := r.o.Store.Get(ctx, profile)
	if errors.Is(err, lease.ErrNotFound) {
		e, err = lease.Entry{Record: lease.Record{ProfileID: profile}}, nil
	}
	must(err)
	_, err = r.o.Store.Swap(ctx, e, rec)
	must(err)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		// A watch that has just begun forgets what was noted before, until it shows that, too.
		_, complete, _ := r.host.Catalog.Rows()
		if known, ok := r.host.Catalog.Record(profile); complete && ok && known.State == rec.State && known.SnapshotID == rec.SnapshotID {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("the launcher does not see %s", profile)
		}
	}
}

// as is a context of somebody who has these profiles.
func (r *reading) as(role principal.Role, patterns ...string) context.Context {
	return principal.In(r.t.Context(), principal.Principal{Name: "ann", Role: role, Profiles: patterns})
}

func fromEU(m *api.Manifest) { m.Labels = lease.Labels{"region": "eu"} }

// readAny asks for an ephemeral session of any profile that fits.
func (r *reading) readAny(ctx context.Context, task string, change func(*api.Manifest)) (api.Session, error) {
	m := api.Manifest{WorkerID: "reader", TaskID: task, Ephemeral: true}
	change(&m)
	return r.Acquire(ctx, m)
}

const here = "156.0.8078.79"

// A task that reads any profile that fits gets one that has a snapshot which this host can read,
// and readers spread over them. It makes no difference who has the profiles.
func TestAnyThatFitsIsRead(t *testing.T) {
	r := startReading(t, 8, nil)
	r.readable("eu-0", "", nil)
	r.readable("eu-1", "157.0.1.2", nil)
	r.readable("eu-2", here, func(rec *lease.Record) {
		rec.State, rec.SessionID, rec.LauncherID, rec.Token = lease.Held, "ses", "elsewhere", 8
	})
	r.readable("eu-3", here, func(rec *lease.Record) { rec.AccountID = "shop" })
	r.readable("us-1", here, func(rec *lease.Record) { rec.AccountID = "shop" })
	worker := r.as(principal.Worker, "*")
	var got []string
	for n := range 4 {
		s, err := r.readAny(worker, fmt.Sprint("t", n), fromEU)
		if err != nil || !s.Ephemeral || !s.ReadOnly || s.Token != 7 {
			t.Fatalf("%+v, %v", s, err)
		}
		got = append(got, s.ProfileID)
	}
	if want := []string{"eu-2", "eu-3", "eu-2", "eu-3"}; !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
	for what, tt := range map[string]struct {
		ctx    context.Context
		change func(*api.Manifest)
		want   string
	}{
		"of an account":                {worker, func(m *api.Manifest) { m.AccountID = "shop" }, "us-1"},
		"of an account, with a label":  {worker, func(m *api.Manifest) { m.AccountID = "shop"; fromEU(m) }, "eu-3"},
		"only those that one may open": {r.as(principal.Worker, "eu-3", "us-*"), fromEU, "eu-3"},
	} {
		s, err := r.readAny(tt.ctx, what, tt.change)
		if err != nil || s.ProfileID != tt.want {
			t.Errorf("%s: %s, %v; want %s", what, s.ProfileID, err, tt.want)
		} else {
			r.end(s)
		}
	}
	// The same worker and task comes back to its own, as long as that is one that fits.
	again := func(task string, change func(*api.Manifest)) (api.Session, error) {
		return r.readAny(worker, task, func(m *api.Manifest) { change(m); m.OneShot = true })
	}
	first, err := again("own", fromEU)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := again("own", fromEU); err != nil || s.SessionID != first.SessionID {
		t.Errorf("%s, then %s, %v", first.SessionID, s.SessionID, err)
	}
	if s, err := again("own", func(m *api.Manifest) { m.Labels = lease.Labels{"region": "us"} }); err != nil || s.SessionID == first.SessionID {
		t.Errorf("one of another region: %s, %v", s.ProfileID, err)
	}
	if e, err := r.o.Store.Get(t.Context(), "eu-2"); err != nil || e.Record.Token != 8 || e.Record.SessionID != "ses" {
		t.Errorf("a profile that was read: %+v, %v", e.Record, err)
	}
}

// Where none can be read it is said why, and of how many.
func TestNoneCanBeRead(t *testing.T) {
	r := startReading(t, 1, nil)
	worker, writes := r.as(principal.Worker, "*"), false
	refused := func(why string, ctx context.Context, code string, counts map[string]int, change func(*api.Manifest)) {
		t.Helper()
		_, err := r.readAny(ctx, "t", change)
		var p *api.Problem
		if errors.As(err, &p); codeOf(err) != code || fmt.Sprint(p.More["candidates"]) != fmt.Sprint(counts) && counts != nil {
			t.Errorf("%s: %v, want %s of %v", why, err, code, counts)
		}
		r.unused()
	}
	refused("none fits", worker, api.CodeUnknownProfile, nil, fromEU)
	r.readable("eu-0", "", nil)
	r.readable("eu-1", "", nil)
	refused("no snapshots", worker, api.CodeNoSnapshot, map[string]int{api.CodeNoSnapshot: 2}, fromEU)
	refused("none that one may open", r.as(principal.Worker, "us-*"), api.CodeUnknownProfile, nil, fromEU)
	r.readable("eu-1", here, func(rec *lease.Record) { rec.State = lease.ManualReview })
	sending := func(m *api.Manifest) { fromEU(m); m.ReadOnly = &writes }
	refused("one that sends, of a worker", worker, api.CodeUnknownProfile, nil, sending)
	refused("one that sends, while the account stands still", r.as(principal.Operator, "*"), api.CodeInReview, map[string]int{api.CodeInReview: 1, api.CodeNoSnapshot: 1}, sending)
	s, err := r.readAny(worker, "t", fromEU)
	if err != nil || s.ProfileID != "eu-1" {
		t.Fatalf("one that only reads, of a profile in review: %+v, %v", s, err)
	}
	if _, err := r.readAny(worker, "t2", fromEU); codeOf(err) != api.CodeHostFull {
		t.Errorf("without a place: %v", err)
	}
	r.end(s)
	r.unused()
}
