package launcher

import (
	"context"
	"testing"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// TestNobodyGivesAnAccountOfOthers: whoever uses a profile can have the sidecar sign in as its account. Who manages
// some profiles gives these an account of their own or a new one, and no account of profiles that others
// manage, by whatever way the account comes to a profile.
func TestNobodyGivesAnAccountOfOthers(t *testing.T) {
	l, store := startLauncher(t)
	must := mustIn(t)
	admin := byOperator(t.Context())
	bob := principal.In(t.Context(), principal.Principal{Name: "bob", Role: principal.Operator, Profiles: principal.Patterns{"test_*", "named"}})
	put := func(ctx context.Context, profile string, account *string) error {
		_, err := l.PutProfile(ctx, profile, api.ProfileSettings{AccountID: account})
		return err
	}
	task := func(profile, account string, create bool) error {
		s, err := l.Acquire(bob, api.Manifest{ProfileID: profile, AccountID: account, Create: create})
		if err == nil {
			_, err = l.Release(bob, s.SessionID, api.Release{Write: api.Write{Token: s.Token}})
		}
		return err
	}
	must(put(admin, "shop", new("ann")))
	must(put(admin, "bank", nil)) // its secret is under its own name
	must(put(admin, "other", new("named")))
	must(put(admin, "test_own", new("own")))
	must(put(admin, "test_there", nil))

	ways := map[string]struct {
		try  func(profile, account string) error
		code string
	}{
		"put":    {func(profile, account string) error { return put(bob, profile, &account) }, api.CodeForbidden},
		"create": {func(profile, account string) error { return task(profile, account, true) }, api.CodeAccountMismatch},
		"import": {func(profile, account string) error {
			_, err := l.ImportProfile(bob, profile, api.ProfileImport{From: userDataDir(t), AccountID: &account})
			return err
		}, api.CodeForbidden},
		"put, of one that is there":  {func(_, account string) error { return put(bob, "test_there", &account) }, api.CodeForbidden},
		"task, of one that is there": {func(_, account string) error { return task("test_there", account, false) }, api.CodeAccountMismatch},
	}
	for name, way := range ways {
		for _, account := range []string{"ann", "bank"} {
			if err := way.try("test_1", account); codeOf(err) != way.code {
				t.Errorf("%s, account %s: %v, want the code %q", name, account, err, way.code)
			}
		}
	}
	if err := put(bob, "named", nil); codeOf(err) != api.CodeForbidden {
		t.Errorf("a profile by whose name another's account is known: %v", err)
	}
	if err := task("named", "", true); codeOf(err) != api.CodeForbidden {
		t.Errorf("a task that makes it: %v", err)
	}
	for _, profile := range []string{"test_1", "test_there", "named"} {
		if e, err := store.Get(t.Context(), profile); err == nil && e.Record.AccountID != "" || profile != "test_there" && e.Record.State != "" {
			t.Errorf("%s is %+v", profile, e.Record)
		}
	}
	for profile, account := range map[string]string{"test_2": "own", "test_3": "new"} {
		must(put(bob, profile, &account))
	}
	must(task("test_there", "own", false))
	if e, err := store.Get(t.Context(), "test_there"); err != nil || e.Record.AccountID != "own" || e.Record.State != lease.Available {
		t.Errorf("%+v, %v", e.Record, err)
	}
}
