package httpapi

import (
	"net/http"
	"time"

	"leasehold/launcher/api"
)

// exportStall bounds how long a client may take to read the next piece of an export.
const exportStall = 30 * time.Second

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
	control := http.NewResponseController(c.w)
	if err := e.Write(c.r.Context(), patient{c.w, control}); err != nil {
		if !c.gone() {
			c.o.Log.Error().Err(err).Str("evidence", clip(c.param("evidence"))).Msg("export was cut off")
		}
		panic(http.ErrAbortHandler)
	}
	_ = control.SetWriteDeadline(time.Time{}) // if it cannot be set, there was none
	return nil
}

// patient writes to a client for as long as it reads, however slowly, and gives up on one that
// stalls.
type patient struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (p patient) Write(b []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(exportStall)) // if it cannot be set, the export waits
	return p.w.Write(b)
}
