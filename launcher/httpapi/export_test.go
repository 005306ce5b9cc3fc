package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"leasehold/launcher/api"
)

// exported is a scripted export.
func exported(text string) api.ExportedEvidence {
	return api.ExportedEvidence{FileName: "leasehold-evd_1.html", MediaType: "text/html; charset=utf-8", Write: func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}}
}

func TestExportIsAFile(t *testing.T) {
	f := serve(t, Options{}, map[string]any{"ExportEvidence": exported("<script>1</script>")})
	r, body := f.request("GET", "/v1/evidence/evd_1/export?format=html&unverified=true", "")
	for name, want := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "Content-Disposition": `attachment; filename="leasehold-evd_1.html"`,
		"Content-Security-Policy": "sandbox; default-src 'none'", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if body != "<script>1</script>" {
		t.Errorf("body %q", body)
	}
	f.wantCalls(`ExportEvidence "evd_1" {"Format":"html","Unverified":true,"Stored":false}`)
	if r, body := f.request("HEAD", "/v1/evidence/evd_1/export?format=html", ""); r.StatusCode != http.StatusOK || body != "" {
		t.Errorf("HEAD: %s %q", r.Status, body)
	}
	f.wantCalls(`ExportEvidence "evd_1" {"Format":"html","Unverified":false,"Stored":false}`)
	for _, query := range []string{"unverified=perhaps", "stored=2"} {
		r, body := f.request("GET", "/v1/evidence/evd_1/export?format=zip&"+query, "")
		name, _, _ := strings.Cut(query, "=")
		if p := problemOf(t, r, body); p.Code != api.CodeInvalidRequest || p.Field != name {
			t.Errorf("%s: %+v", query, p)
		}
	}
	f.wantCalls()
}

// Nobody may take the beginning of a file for all of it.
func TestAnExportThatFailsHalfWayEndsTheConnection(t *testing.T) {
	half := exported("")
	half.Write = func(_ context.Context, w io.Writer) error {
		if _, err := io.WriteString(w, strings.Repeat("x", 1<<20)); err != nil {
			return err
		}
		return errors.New("the store went away")
	}
	f := serve(t, Options{}, map[string]any{"ExportEvidence": half})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.URL+"/v1/evidence/evd_1/export?format=html", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.ReadAll(response.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the file ends with %v, want an unexpected end", err)
	}
	if !strings.Contains(f.log.String(), "the store went away") {
		t.Errorf("log: %s", f.log)
	}
}
