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
	return []route{
		v1(get, "/profiles/{profile}/evidence", onProfile(principal.Evidence), read(profileID, api.Service.Evidence, answerBundles)),
		v1(get, "/evidence/{evidence}", onEvidence, read(evidenceID, api.Service.EvidenceManifest, answerManifest)),
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

// answerManifest sends a bundle's manifest byte for byte: the hash of these bytes links
// the profile's next bundle to it.
func answerManifest(c *call, manifest json.RawMessage) error {
	c.bytes(http.StatusOK, "application/json", manifest)
	return nil
}

// getEvidencePart answers with what a page in somebody's account left behind: a
// browser that shows it must not run it.
func getEvidencePart(c *call) error {
	stored := false
	if said := c.query.Get("stored"); said != "" {
		var err error
		if stored, err = strconv.ParseBool(said); err != nil {
			return api.Invalid("stored", "%.40q: want true or false", said)
		}
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
