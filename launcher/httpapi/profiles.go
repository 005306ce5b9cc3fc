package httpapi

import (
	"net/http"

	"leasehold/launcher/api"
	"leasehold/lease"
)

func profileRoutes() []route {
	const get, post, put = http.MethodGet, http.MethodPost, http.MethodPut
	const one = "/profiles/{profile}"
	return []route{
		v1(get, "/profiles", listProfiles),
		v1(get, one, read(profileID, api.Service.Profile, answerRecord)),
		v1(put, one, write(profileID, optional[api.ProfileSettings]("profile's settings"), api.Service.PutProfile, answerRecord)),
		v1(post, one+"/import", write(profileID, required[api.ProfileImport]("import"), api.Service.ImportProfile, answerNewProfile)),
		v1(post, one+"/clone", write(profileID, required[api.ProfileClone]("clone"), api.Service.CloneProfile, answerNewProfile)),
		v1(post, one+"/archive", write(profileID, optional[api.ProfileArchive]("archive"), api.Service.ArchiveProfile, answerWith[api.Archived](http.StatusOK))),
		v1(post, one+"/remove-clone", write(profileID, required[api.ProfileRemove]("removal"), api.Service.RemoveClone, answerWith[api.Removed](http.StatusOK))),
		v1(get, one+"/history", read(profileID, api.Service.History, answerHistory)),
		v1(get, one+"/inspection", read(profileID, api.Service.Inspection, answerInspection)),
		v1(post, one+"/review", write(profileID, withToken(required[api.ReviewRequest]("review")), api.Service.Review, answerRecord)),
		v1(post, one+"/hold", write(profileID, required[api.HoldRequest]("hold"), api.Service.Hold, answerGranted)),
	}
}

// profileID is the profile that the path names.
func profileID(c *call) (string, error) {
	profile := c.param("profile")
	if err := lease.CheckProfileID(profile); err != nil {
		return "", api.Invalid("profile_id", "%v", err)
	}
	return profile, nil
}

func listProfiles(c *call) error {
	records, err := c.svc.Profiles(c.r.Context())
	if err != nil {
		return err
	}
	public := make([]lease.Record, len(records))
	for i, r := range records {
		public[i] = r.Public()
	}
	return answerPage(profileOrder)(c, public)
}

func answerRecord(c *call, r lease.Record) error { return c.json(http.StatusOK, r.Public()) }

func answerNewProfile(c *call, r lease.Record) error {
	c.w.Header().Set("Location", "/v1/profiles/"+r.ProfileID)
	return c.json(http.StatusCreated, r.Public())
}

func answerInspection(c *call, found api.Inspection) error {
	found.Facts, found.Reasons = orEmpty(found.Facts), orEmpty(found.Reasons)
	return c.json(http.StatusOK, found)
}
