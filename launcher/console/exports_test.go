package console

import (
	"strings"
	"testing"
)

// The page of a profile has links that save its bundle, with the API token that the page
// was asked for with.
func TestABundleCanBeSaved(t *testing.T) {
	b := &backend{profiles: records(), cases: map[string]scene{reviewed: usual("evd_2")}}
	body := b.ask("GET", "/console/"+reviewed+"?token="+token, "").Body.String()
	for _, format := range []string{"html", "har", "zip"} {
		want := `href="/v1/evidence/evd_2/export?format=` + format + `&amp;token=` + token + `" download>`
		if !strings.Contains(body, want) {
			t.Errorf("the page does not have %s", want)
		}
	}
	v := &view{}
	if got, want := v.Export("evd_2", "zip", true), "/v1/evidence/evd_2/export?format=zip&stored=true"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
