package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// profileCmds list profiles, make new ones, and archive or remove them.
type profileCmds struct {
	List    profilesCmd      `cmd:"" default:"withargs" help:"List the profiles and who holds them."`
	Create  createProfileCmd `cmd:"" help:"Make a profile, or change the settings of one."`
	Import  importProfileCmd `cmd:"" help:"Make a profile of a copy of a Chrome user-data-dir of the sidecar's host."`
	Clone   cloneProfileCmd  `cmd:"" help:"Make a profile of a copy of another, for runs that are thrown away."`
	Move    moveCmd          `cmd:"" help:"Make the sidecar the home of a profile, with its newest snapshot."`
	Rehome  rehomeCmd        `cmd:"" help:"Make the sidecar the home of a profile whose home is gone, with a copy or an empty directory."`
	Archive archiveCmd       `cmd:"" help:"Put a profile aside; nothing is deleted."`
	Remove  removeCloneCmd   `cmd:"" name:"remove-clone" help:"Delete a profile that was made by clone; no other."`

	Snapshots snapshotsCmd       `cmd:"" help:"List the snapshots of a profile in the profile store."`
	Restore   restoreCmd         `cmd:"" help:"Bring back a snapshot of a profile; the state before is kept."`
	Verify    verifySnapshotsCmd `cmd:"" help:"Read every byte of a profile's snapshots."`
	Keygen    profileKeygenCmd   `cmd:"" help:"Make the key of a profile store."`
}

type profileArg string

// Validate implements kong's hook for values.
func (p profileArg) Validate() error { return lease.CheckProfileID(string(p)) }

type profilesCmd struct {
	clientFlags `embed:""`
	Free        bool     `help:"Only those that could be granted now, as far as the sidecar knows."`
	Account     string   `placeholder:"ID" help:"Only those of this account; a * stands for any characters."`
	SignedIn    string   `enum:",yes,no,unknown" default:"" placeholder:"yes|no|unknown" help:"Only those whose account is signed in, or is not."`
	Label       []string `sep:"none" placeholder:"NAME:VALUE" help:"Only those with this label; may be given several times, and a * in the value stands for any characters."`
}

// filters are the query parameters of the list.
func (c *profilesCmd) filters() (url.Values, error) {
	labels, err := lease.ParseLabels(c.Label)
	if err == nil {
		err = labels.CheckAsked()
	}
	if err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("--label: %w", err)}
	}
	q := api.ProfileQuery{AccountID: c.Account, SignedIn: lease.SignedIn(c.SignedIn), Labels: labels}
	if c.Free {
		q.Free = &c.Free
	}
	return q.Filters(), nil
}

// Run prints the list.
func (c *profilesCmd) Run(a *app) error {
	filters, err := c.filters()
	if err != nil {
		return err
	}
	return shown(c.clientFlags, a, func(ctx context.Context, sidecar *client) (json.RawMessage, error) {
		return sidecar.with(filters).askAll(ctx, "v1", "profiles")
	}, func(profiles list[api.Profile]) error {
		slices.SortFunc(profiles.Items, func(x, y api.Profile) int { return strings.Compare(x.ProfileID, y.ProfileID) })
		t := newColumns(a.stdout, "PROFILE", "STATE", "TOKEN", "OWNER", "TASK", "HOME", "SIGNED IN", "LAST URL")
		for _, r := range profiles.Items {
			state := api.StateShown(r.Record)
			switch {
			case !r.WarmSince.IsZero():
				state += " (warm)"
			case r.State == lease.Available && time.Now().Before(r.AvailableAfter):
				state += " (cools down)"
			}
			t.row(r.ProfileID, state, r.Token, r.OwnerWorkerID, r.TaskID, r.Home, r.SignedIn, r.LastKnownURL)
		}
		if !profiles.StaleSince.IsZero() {
			a.warn("%s", staleText(profiles.StaleSince))
		}
		return t.flush()
	})
}

// accountFlags are the settings of a profile that can be given only once.
type accountFlags struct {
	Account string `placeholder:"ID" help:"The account that it belongs to, for good."`
	Proxy   string `placeholder:"ID" help:"The proxy that it goes out through, for good: one of the sidecar's --proxies."`
}

// optional is nil for a flag that was left out.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

type createProfileCmd struct {
	clientFlags  `embed:""`
	Profile      profileArg `arg:"" help:"The profile."`
	accountFlags `embed:""`
	Runs         int       `name:"max-active-runs" placeholder:"N" help:"How many tasks may share its browser (default: 1)."`
	Label        []string  `sep:"none" placeholder:"NAME:VALUE" help:"What tasks may ask for in the place of its name, such as region:us; may be given several times, and replaces all labels that it has; '' removes them."`
	Domains      []string  `name:"expected-domains" placeholder:"DOMAIN" help:"Where its tasks are supposed to be."`
	KeepWarm     *bool     `negatable:"" help:"Keep its browser open after a release, for the next task; --no-keep-warm: never (default: its tasks decide)."`
	Memory       *byteSize `name:"browser-memory" placeholder:"SIZE" help:"The most that its browser may have in memory, where that is less than the host's limit; 0 is the host's."`
	ReadOnly     *bool     `negatable:"" help:"Fail unsafe requests of its pages (POST, PUT, PATCH, DELETE) and their websockets."`
	Mobility     *string   `enum:"pinned,free" placeholder:"pinned|free" help:"Whether it may move to another host by itself, with its snapshot (free); else only a person moves it (default: pinned)."`
	Timezone     *string   `placeholder:"ZONE" help:"The time zone that its pages see, such as Europe/Berlin; '' is the host's."`
	Locale       *string   `placeholder:"LOCALE" help:"The language that its browser names to sites, such as de-DE; '' is the host's."`
	Viewport     *string   `placeholder:"WIDTHxHEIGHT" help:"The size of its pages in pixels, such as 1366x768; '' is what the browser opens with."`
	Geolocation  *string   `placeholder:"LAT,LON" help:"Where its pages find that they are, if they may ask, in degrees, such as 52.52,13.405; '' is what the browser finds out."`
	TokenOrigins []string  `name:"fence-header-origin" placeholder:"ORIGIN" help:"An origin of your own services, such as https://queue.example: what its pages send there carries the lease token; may be given several times."`
	Harmless     []string  `name:"harmless-request" sep:"none" placeholder:"REQUEST" help:"A kind of request that changes nothing of the account, such as 'POST https://shop.example/search', beside those that it has; may be given several times; '' removes those that it has."`
	Check        *string   `name:"session-check" placeholder:"URL" help:"What to GET to find out whether the account is signed in, such as https://shop.example/api/me; '' removes it."`
	CheckStatus  int       `name:"session-check-status" placeholder:"N" help:"The status of the answer that proves it (default: 200)."`
	CheckEvery   *string   `placeholder:"TIME" help:"How often to check that while nobody uses the profile, such as 15m; 0s: only after its sessions (default)."`
	CheckText    string    `name:"session-check-text" placeholder:"TEXT" help:"A text of the answer that proves it, such as the account's name."`
}

// Run sends the settings that were given.
func (c *createProfileCmd) Run(a *app) error {
	settings := api.ProfileSettings{AccountID: optional(c.Account), ProxyID: optional(c.Proxy), KeepWarm: c.KeepWarm, ReadOnly: c.ReadOnly, Mobility: c.Mobility, Timezone: c.Timezone, Locale: c.Locale, Viewport: c.Viewport, Geolocation: c.Geolocation}
	if c.Runs != 0 {
		settings.MaxActiveRuns = &c.Runs
	}
	if len(c.Label) > 0 {
		labels, err := lease.ParseLabels(slices.DeleteFunc(c.Label, func(text string) bool { return text == "" }))
		if err == nil {
			err = labels.Check()
		}
		if err != nil {
			return &exitError{exitUsage, fmt.Errorf("--label: %w", err)}
		}
		settings.Labels = &labels
	}
	if len(c.Domains) > 0 {
		settings.ExpectedDomains = &c.Domains
	}
	if c.Memory != nil {
		memory := uint64(*c.Memory)
		settings.BrowserMemory = &memory
	}
	if len(c.TokenOrigins) > 0 {
		settings.FenceHeaderOrigins = &c.TokenOrigins
	}
	if c.CheckEvery != nil {
		every, err := lease.ParseDuration(*c.CheckEvery)
		if err != nil {
			return &exitError{exitUsage, fmt.Errorf("--check-every: %w", err)}
		}
		settings.CheckEvery = &every
	}
	switch {
	case c.Check != nil:
		settings.SessionCheck = &lease.SessionCheck{URL: *c.Check, Status: c.CheckStatus, Text: c.CheckText}
	case c.CheckStatus != 0 || c.CheckText != "":
		return exitWith(exitUsage, "--session-check-status and --session-check-text need --session-check")
	}
	return c.withSidecar(a, func(ctx context.Context, sidecar *client) error {
		if len(c.Harmless) > 0 {
			all, err := c.harmless(ctx, sidecar)
			if err != nil {
				return err
			}
			settings.HarmlessRequests = &all
		}
		return c.sendChange(ctx, a, sidecar, http.MethodPut, settings, "v1", "profiles", string(c.Profile))
	})
}

// harmless are the declarations that were given, beside those that the profile has.
func (c *createProfileCmd) harmless(ctx context.Context, sidecar *client) ([]string, error) {
	given := slices.DeleteFunc(slices.Clone(c.Harmless), func(text string) bool { return text == "" })
	if len(given) < len(c.Harmless) {
		return given, nil
	}
	r, err := sidecar.record(ctx, string(c.Profile))
	if err != nil && !refusedWith(err, api.CodeUnknownProfile) {
		return nil, err
	}
	all := slices.Clone(r.HarmlessRequests)
	for _, text := range given {
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all, nil
}

type importProfileCmd struct {
	clientFlags  `embed:""`
	Profile      profileArg `arg:"" help:"The new profile."`
	From         string     `required:"" type:"path" placeholder:"DIR" help:"The user-data-dir, which no browser uses. It stays as it is."`
	accountFlags `embed:""`
}

// Run asks the sidecar to copy the directory.
func (c *importProfileCmd) Run(a *app) error {
	return c.change(a, http.MethodPost, api.ProfileImport{From: c.From, AccountID: optional(c.Account), ProxyID: optional(c.Proxy)}, "v1", "profiles", string(c.Profile), "import")
}

type cloneProfileCmd struct {
	clientFlags `embed:""`
	Profile     profileArg `arg:"" help:"The profile to copy, which nobody uses, or of which there is a snapshot."`
	To          profileArg `required:"" placeholder:"PROFILE" help:"The new profile. It has the same account and proxy."`
	Snapshot    string     `placeholder:"ID" help:"Copy this snapshot, or the newest one: newest. That is had at any sidecar with the profile store, whoever has the profile (default: its directory, at its home)."`
}

// Run asks the sidecar to copy the profile, or its snapshot.
func (c *cloneProfileCmd) Run(a *app) error {
	return c.change(a, http.MethodPost, api.ProfileClone{To: string(c.To), SnapshotID: c.Snapshot}, "v1", "profiles", string(c.Profile), "clone")
}

type archiveCmd struct {
	clientFlags `embed:""`
	Profile     profileArg  `arg:"" help:"The profile, which nobody uses."`
	Token       lease.Token `placeholder:"N" help:"The lease token that was seen: another is refused."`
}

// Run asks the sidecar to archive the profile.
func (c *archiveCmd) Run(a *app) error {
	return c.change(a, http.MethodPost, api.ProfileArchive{Token: c.Token}, "v1", "profiles", string(c.Profile), "archive")
}

type removeCloneCmd struct {
	clientFlags `embed:""`
	Profile     profileArg   `arg:"" help:"The clone, which nobody uses."`
	Token       *lease.Token `placeholder:"N" help:"The lease token that was seen: another is refused (default: the one shown now)."`
}

// Run asks the sidecar to remove the clone, with the profile's present token if none was given.
func (c *removeCloneCmd) Run(a *app) error {
	return c.withSidecar(a, func(ctx context.Context, sidecar *client) error {
		token, err := seenToken(ctx, a, sidecar, c.Profile, c.Token)
		if err != nil {
			return err
		}
		return c.sendChange(ctx, a, sidecar, http.MethodPost, api.ProfileRemove{Token: token}, "v1", "profiles", string(c.Profile), "remove-clone")
	})
}

// seenToken is the lease token that the user saw for a profile: its present one, which they are shown, if
// none was given.
func seenToken(ctx context.Context, a *app, sidecar *client, profile profileArg, given *lease.Token) (lease.Token, error) {
	if given != nil {
		return *given, nil
	}
	shown, err := showRecord(ctx, a, sidecar, string(profile))
	return shown.Token, err
}

// change sends a change of a profile and prints the result.
func (f clientFlags) change(a *app, method string, in any, path ...string) error {
	return f.withSidecar(a, func(ctx context.Context, sidecar *client) error {
		return f.sendChange(ctx, a, sidecar, method, in, path...)
	})
}

func (f clientFlags) sendChange(ctx context.Context, a *app, sidecar *client, method string, in any, path ...string) error {
	raw, err := sidecar.askFor(ctx, method, in, path...)
	if err != nil || f.JSON {
		return a.printAnswer(raw, err)
	}
	var now struct {
		ProfileID string `json:"profile_id"`
		State     string `json:"state"`
		Path      string `json:"path"`
		CloneOf   string `json:"clone_of"`
	}
	if err := json.Unmarshal(raw, &now); err != nil {
		return fmt.Errorf("the sidecar's answer: %w", err)
	}
	result := cell(now.State)
	switch {
	case now.Path != "":
		result = "put aside in " + printable(now.Path)
	case now.CloneOf != "":
		result = "removed, a clone of " + printable(now.CloneOf)
	}
	_, err = fmt.Fprintf(a.stdout, "%s: %s\n", printable(now.ProfileID), result)
	return err
}
