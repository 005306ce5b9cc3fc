package httpapi

import (
	"encoding/base64"
	"net/http"
	"slices"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

func profileRoutes() []route {
	const get, post, put = http.MethodGet, http.MethodPost, http.MethodPut
	const one = "/profiles/{profile}"
	return []route{
		v1(get, "/profiles", forRole(principal.Read, principal.Use), listProfiles),
		v1(get, "/queue", forRole(principal.Read, principal.Use), listQueue),
		v1(get, one, toSeeProfile, read(profileID, api.Service.Profile, answerRecord)),
		v1(put, one, onProfile(principal.Manage), write(profileID, optional[api.ProfileSettings]("profile's settings"), api.Service.PutProfile, answerRecord)),
		v1(post, one+"/import", onProfile(principal.Manage), write(profileID, required[api.ProfileImport]("import"), api.Service.ImportProfile, answerNewProfile)),
		v1(post, one+"/clone", onProfile(principal.Manage), write(profileID, readClone, api.Service.CloneProfile, answerNewProfile)),
		v1(post, one+"/move", onProfile(principal.Manage), write(profileID, required[api.ProfileMove]("move"), api.Service.MoveProfile, answerRecord)),
		v1(post, one+"/rehome", onProfile(principal.Review), write(profileID, readRehome, api.Service.RehomeProfile, answerRecord)),
		v1(post, one+"/archive", onProfile(principal.Manage), write(profileID, optional[api.ProfileArchive]("archive"), api.Service.ArchiveProfile, answerWith[api.Archived](http.StatusOK))),
		v1(post, one+"/remove-clone", onProfile(principal.Manage), write(profileID, required[api.ProfileRemove]("removal"), api.Service.RemoveClone, answerWith[api.Removed](http.StatusOK))),
		v1(get, one+"/snapshots", onProfile(principal.Read), read(profileID, api.Service.Snapshots, answerSnapshots)),
		v1(post, one+"/restore", onProfile(principal.Manage), write(profileID, withToken(required[api.ProfileRestore]("restore")), api.Service.RestoreProfile, answerWith[api.Restored](http.StatusOK))),
		v1(post, one+"/verify", onProfile(principal.Manage), write(profileID, optional[api.ProfileVerify]("verification"), api.Service.VerifySnapshots, answerWith[api.SnapshotsChecked](http.StatusOK))),
		v1(post, one+"/check", onProfile(principal.Hold), read(profileID, api.Service.CheckProfile, answerWith[api.SessionChecked](http.StatusOK))),
		v1(get, one+"/history", onProfile(principal.Read), read(profileID, api.Service.History, answerHistory)),
		v1(get, one+"/inspection", onProfile(principal.Read), read(profileID, api.Service.Inspection, answerInspection)),
		v1(post, one+"/review", onProfile(principal.Review), write(profileID, withToken(required[api.ReviewRequest]("review")), api.Service.Review, answerRecord)),
		v1(post, one+"/sign-in-link", onProfile(principal.Hold), makeSignInLink),
		v1(http.MethodDelete, one+"/sign-in-link", onProfile(principal.Hold), revokeSignInLink),
		v1(post, one+"/hold", onProfile(principal.Hold), write(profileID, required[api.HoldRequest]("hold"), api.Service.Hold, answerGranted)),
	}
}

func answerSnapshots(c *call, snapshots []api.Snapshot) error {
	return c.json(http.StatusOK, list[api.Snapshot]{Items: orEmpty(snapshots)})
}

func profileID(c *call) (string, error) {
	profile := c.param("profile")
	if err := lease.CheckProfileID(profile); err != nil {
		return "", api.Invalid("profile_id", "%v", err)
	}
	return profile, nil
}

// profileList is a page of profiles. StaleSince is the time since which the lease store cannot
// be reached, so that the list shows what was seen before; zero: the store can be reached.
type profileList struct {
	list[api.Profile]
	StaleSince time.Time `json:"stale_since,omitzero"`
}

func listProfiles(c *call) error {
	limit, after, err := c.pageAsked()
	if err != nil {
		return err
	}
	q, err := api.ParseProfileQuery(c.query)
	if err != nil {
		return err
	}
	q.Limit, q.After = limit, after
	var own []string
	if !c.who.Role.Has(principal.Read) {
		own = c.ownProfiles()
	}
	q.Visible = func(profile string) bool {
		return c.who.May(principal.Read, profile) || slices.Contains(own, profile)
	}
	found, err := c.svc.ListProfiles(c.r.Context(), q)
	if err != nil {
		return err
	}
	shown := func() (public []api.Profile) {
		for _, r := range found.Items {
			public = append(public, r.Public())
		}
		return orEmpty(public)
	}
	fit, err := fitting(shown())
	if err != nil {
		return err
	}
	if q.Limit = len(fit); q.Limit < len(found.Items) {
		if found, err = c.svc.ListProfiles(c.r.Context(), q); err != nil {
			return err
		}
	}
	answer := profileList{list[api.Profile]{Items: shown()}, found.Stale.UTC()}
	if found.Next != nil {
		next := base64.RawURLEncoding.EncodeToString([]byte(*found.Next))
		answer.Next = &next
	}
	return c.json(http.StatusOK, answer)
}

// readClone reads the request for a clone. The caller has to be allowed to make the new
// profile.
func readClone(c *call) (api.ProfileClone, error) {
	in, err := required[api.ProfileClone]("clone")(c)
	if err == nil && !c.who.May(principal.Manage, in.To) {
		err = c.forbidden(principal.Manage, in.To)
	}
	return in, err
}

// readRehome reads the request for a new home. Reviewers give one to a profile whose home is gone. A caller who names
// a directory to copy has to be allowed to import, and one who takes the profile from a home that is there, to move.
func readRehome(c *call) (api.ProfileRehome, error) {
	in, err := required[api.ProfileRehome]("rehome")(c)
	if profile := c.param("profile"); err == nil && (in.From != "" || in.AskHome) && !c.who.May(principal.Manage, profile) {
		err = c.forbidden(principal.Manage, profile)
	}
	return in, err
}

func answerRecord(c *call, r api.Profile) error { return c.json(http.StatusOK, r.Public()) }

func answerNewProfile(c *call, r api.Profile) error {
	c.w.Header().Set("Location", "/v1/profiles/"+r.ProfileID)
	return c.json(http.StatusCreated, r.Public())
}

func answerInspection(c *call, found api.Inspection) error {
	found.Facts, found.Reasons = orEmpty(found.Facts), orEmpty(found.Reasons)
	return c.json(http.StatusOK, found)
}
