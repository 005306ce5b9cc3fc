package export_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/evidence/export"
	"leasehold/evidence/recorder"
	"leasehold/internal/test/clients"
)

// harSchema is the JSON schema of HAR 1.2, of the npm package har-schema.
func harSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	dir := filepath.Join(clients.Dir(), "node_modules", "har-schema", "lib")
	found, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no schema in %s: run make clients (%v)", dir, err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	for _, file := range found {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		document, err := jsonschema.UnmarshalJSON(f)
		f.Close()
		if err == nil {
			err = compiler.AddResource("https://har/"+filepath.Base(file), relative(document))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	schema, err := compiler.Compile("https://har/har.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// relative removes the ids, which are file names, so that the files find each other by
// their addresses.
func relative(document any) any {
	if m, ok := document.(map[string]any); ok {
		delete(m, "$id")
	}
	return document
}

func validHAR(t testing.TB, schema *jsonschema.Schema, har string) {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(har))
	if err != nil {
		t.Fatalf("the HAR is not JSON: %v", err)
	}
	if err := schema.Validate(document); err != nil {
		t.Errorf("the HAR does not fit its schema: %v\n%.2000s", err, har)
	}
}

func TestTheSchemaRefusesWhatIsNoHAR(t *testing.T) {
	schema := harSchema(t)
	h := newHouse(t, evidence.Keys{})
	har := h.export(t, export.Request{EvidenceID: "ev_2", Format: export.HAR})
	for _, member := range []string{"startedDateTime", "queryString", "timings", "creator", "redirectURL", "mimeType"} {
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(strings.ReplaceAll(har, `"`+member+`"`, `"x"`)))
		if err != nil {
			t.Fatal(err)
		}
		if schema.Validate(document) == nil {
			t.Errorf("a HAR without %s passes", member)
		}
	}
}

// harEntries are the entries of a HAR as "METHOD URL STATUS TYPE ERROR".
func harEntries(t *testing.T, har string) []string {
	t.Helper()
	var h struct {
		Log struct {
			Entries []struct {
				Request  struct{ Method, URL string }
				Response struct {
					Status int
					Failed string `json:"_error"`
				}
				Type string `json:"_resourceType"`
				Time float64
			}
		}
	}
	if err := json.Unmarshal([]byte(har), &h); err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range h.Log.Entries {
		b, _ := json.Marshal([]any{e.Request.Method, e.Request.URL, e.Response.Status, e.Type, e.Response.Failed, e.Time})
		list = append(list, string(b))
	}
	return list
}

func TestHARHasEveryRequestOnce(t *testing.T) {
	h := newHouse(t, evidence.Keys{})
	har := h.export(t, export.Request{EvidenceID: "ev_2", Format: export.HAR})
	validHAR(t, harSchema(t), har)
	got := harEntries(t, har)
	want := []string{
		`["GET","https://shop.example/cart?next=REDACTED\u0026page=2",200,"document","",0]`,
		`["POST","https://shop.example/search",200,"xhr","",0]`,
		`["POST","https://shop.example/pay",0,"document","",0]`,
		`["GET","https://cdn.example/x.js",0,"script","net::ERR_ABORTED",0]`,
		`["GET","wss://shop.example/live",0,"websocket","",0]`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("entries:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, said := range []string{"headers, cookies, bodies", "1 are from the journal", "verified: the hash of its manifest is the one that the lease record names", `"version": "1.2"`} {
		if !strings.Contains(har, said) {
			t.Errorf("the HAR does not say %q", said)
		}
	}
}

// What the monitor no longer had, or never had, is taken from the journal.
func TestHARTakesFromTheJournalWhatIsNotInTheList(t *testing.T) {
	entry := func(at int, method, url string) recorder.RequestEntry {
		return recorder.RequestEntry{At: after(at), Method: method, URL: url, Type: "XHR", Status: 200}
	}
	lines := []checkpoint.Entry{
		{Seq: 1, At: after(1), Kind: checkpoint.KindRequest, Method: "POST", URL: "https://a.example/1", Request: "r1"},
		{Seq: 2, At: after(2), Kind: checkpoint.KindAnswer, Request: "r1", Status: 302},
		{Seq: 3, At: after(9), Kind: checkpoint.KindRequest, Method: "PUT", URL: "https://a.example/9", Request: "r9", Count: 3, First: after(8)},
		{Seq: 4, At: after(10), Kind: checkpoint.KindRequest, Method: checkpoint.Unseen},
		{Seq: 5, At: after(11), Kind: checkpoint.KindBlocked, Method: "DELETE", URL: "https://a.example/11"},
	}
	one := `["POST","https://a.example/1",302,"","",1000]`
	nine := `["PUT","https://a.example/9",0,"","",0]`
	blocked := `["DELETE","https://a.example/11",0,"","blocked",0]`
	for name, c := range map[string]struct {
		total, dropped int
		entries        []recorder.RequestEntry
		missing        string
		want           []string
	}{
		"no list":       {missing: "the monitor was gone", want: []string{one, nine, blocked}},
		"whole list":    {total: 1, entries: []recorder.RequestEntry{entry(1, "POST", "https://a.example/1")}, want: []string{`["POST","https://a.example/1",200,"xhr","",0]`}},
		"its beginning": {total: 900, dropped: 899, entries: []recorder.RequestEntry{entry(8, "PUT", "https://a.example/9")}, want: []string{one, `["PUT","https://a.example/9",200,"xhr","",0]`}},
		"only reading":  {total: 900, dropped: 899, entries: []recorder.RequestEntry{entry(5, "GET", "https://a.example/5")}, want: []string{one, `["GET","https://a.example/5",200,"xhr","",0]`, nine, blocked}},
	} {
		t.Run(name, func(t *testing.T) {
			var list []byte
			if c.missing == "" {
				var err error
				if list, err = json.Marshal(map[string]any{"total": c.total, "dropped": c.dropped, "entries": c.entries}); err != nil {
					t.Fatal(err)
				}
			}
			har := export.HAROf(list, c.missing, checkpoint.Encode(lines))
			if got := harEntries(t, har); !slices.Equal(got, c.want) {
				t.Errorf("entries:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// FuzzHAR makes a HAR of any bytes that a store may have.
func FuzzHAR(f *testing.F) {
	f.Add(network(), journal())
	f.Add([]byte(`{"entries":[{"method":"GET","url":"http://u:p@h/%zz?a=%zz&&=","status":-5,"at":"9999-12-31T23:59:59Z"}]}`), []byte("{}\nx\n"))
	f.Add([]byte(`[]`), []byte(`{"kind":"request","method":"POST","url":"x:\u0000"}`))
	schema := harSchema(f)
	f.Fuzz(func(t *testing.T, network, journal []byte) {
		har := export.HAROf(network, "", journal)
		validHAR(t, schema, har)
		if strings.Contains(har, "u:p@") {
			t.Error("the HAR has a password")
		}
	})
}
