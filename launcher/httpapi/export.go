package httpapi

import (
	"net/http"

	"leasehold/launcher/api"
)

// exportEvidence answers with a bundle as one file. The bundle was read and checked before the
// first byte is sent. An error after that ends the connection, so that no client takes half a
// file for a whole one.
func exportEvidence(c *call) error {
	q := api.EvidenceExport{Format: c.query.Get("format")}
	var err error
	if q.Unverified, err = c.flag("unverified"); err != nil {
		return err
	}
	if q.Stored, err = c.flag("stored"); err != nil {
		return err
	}
	e, err := c.svc.ExportEvidence(c.r.Context(), c.param("evidence"), q)
	if err != nil {
		return err
	}
	h := c.w.Header()
	h.Set("Content-Type", e.MediaType)
	h.Set("Content-Disposition", `attachment; filename="`+e.FileName+`"`)
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'") // for a browser that shows it all the same
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}
	if err := e.Write(c.r.Context(), c.w); err != nil {
		if !c.gone() {
			c.o.Log.Error().Err(err).Str("evidence", clip(c.param("evidence"))).Msg("export was cut off")
		}
		panic(http.ErrAbortHandler)
	}
	return nil
}
