package httpapi

import (
	"encoding/json"
	"net/http"

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
	return answerList(c, bundles)
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
	b, mediaType, err := c.svc.EvidencePart(c.r.Context(), c.param("evidence"), c.param("part"))
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
