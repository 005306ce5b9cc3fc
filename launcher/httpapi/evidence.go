package httpapi

import (
	"encoding/json"
	"net/http"
	"strconv"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

func evidenceRoutes() []route {
	const get = http.MethodGet
	file := v1(get, "/evidence/{evidence}/export", onEvidence, exportEvidence)
	file.special = true
	return []route{
		v1(get, "/profiles/{profile}/evidence", onProfile(principal.Evidence), read(profileID, api.Service.Evidence, answerBundles)),
		v1(get, "/evidence/{evidence}", onEvidence, read(evidenceID, api.Service.EvidenceManifest, answerManifest)),
		file,
		v1(get, "/evidence/{evidence}/{part}", onEvidence, getEvidencePart),
	}
}

// evidenceID is the bundle that the path names.
func evidenceID(c *call) (string, error) { return c.param("evidence"), nil }

func answerBundles(c *call, bundles []api.Bundle) error {
	for i := range bundles {
		bundles[i].Parts = orEmpty(bundles[i].Parts)
	}
	return answerPage(bundleOrder)(c, bundles)
}

// answerManifest sends a bundle's manifest byte for byte, because the hash of these bytes links
// the profile's next bundle to it.
func answerManifest(c *call, manifest json.RawMessage) error {
	c.bytes(http.StatusOK, "application/json", manifest)
	return nil
}

// getEvidencePart answers with data that a page in somebody's account left behind: a browser
// that shows it must not run it.
func getEvidencePart(c *call) error {
	stored, err := c.flag("stored")
	if err != nil {
		return err
	}
	b, mediaType, err := c.svc.EvidencePart(c.r.Context(), c.param("evidence"), c.param("part"), stored)
	if err != nil {
		return err
	}
	if mediaType == "" {
		mediaType = "application/octet-stream"
	}
	c.w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'")
	c.bytes(http.StatusOK, mediaType, b)
	return nil
}

// flag is a parameter of the query that is true or false; it is false if missing.
func (c *call) flag(name string) (bool, error) {
	said := c.query.Get(name)
	if said == "" {
		return false, nil
	}
	on, err := strconv.ParseBool(said)
	if err != nil {
		return false, api.Invalid(name, "%.40q: want true or false", said)
	}
	return on, nil
}
