package members

import (
	"encoding/json"
	"reflect"
	"testing"
)

type base struct {
	Token int `json:"lease_token"`
}

type line struct {
	Shape string            `json:"shape"`
	Where map[string]string `json:"where,omitempty"`
}

type body struct {
	base
	Lines []line          `json:"lines"`
	One   *line           `json:"one"`
	Data  json.RawMessage `json:"data"`
	Any   any             `json:"any"`
	Plain string
}

// TestAMemberThatIsThereTwice is named, wherever it stands, as the decoder takes names; what the task itself keeps as
// JSON, and names of maps, are its own.
func TestAMemberThatIsThereTwice(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"lines":[{"shape":"a"}],"one":{"shape":"b"}}`:                   "",
		`{"lines":[],"lines":[]}`:                                         "lines",
		`{"lines":[],"LINES":[]}`:                                         "LINES",
		`{"lines":[],"line\u017f":[]}`:                                    "lineſ", // the decoder takes it for an s
		`{"lease_token":1,"lea\u0073e_token":2}`:                          "lease_token",
		`{"lines":[{"shape":"a"},{"shape":"a","where":{},"Shape":"b"}]}`:  "lines[1].Shape",
		`{"one":{"where":{"a":"1","A":"2"}}}`:                             "",
		`{"one":{"where":{"a":"1","a":"2"}}}`:                             "one.where.a",
		`{"one":{"shape":"a","shape":"b"},"plain":"a","Plain":"b"}`:       "one.shape",
		`{"plain":"a","Plain":"b"}`:                                       "Plain",
		`{"data":{"a":1,"a":{"b":1,"b":2}},"any":[{"a":1,"a":2,"b":{}}]}`: "",
		`{"data":{"a":1},"any":{"a":1},"data":1}`:                         "data",
		`[]`:   "",
		`null`: "",
	} {
		if got := Doubled([]byte(text), reflect.TypeFor[*body]()); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
