package lease

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"
)

// The names and the order of a record's JSON members are what launchers of other
// versions store and read: testdata/record.json has a record with every member.
func TestRecordAsJSON(t *testing.T) {
	want, err := os.ReadFile("testdata/record.json")
	if err != nil {
		t.Fatal(err)
	}
	var r Record
	if err := json.Unmarshal(want, &r); err != nil {
		t.Fatal(err)
	}
	for _, part := range []any{r, r.Settings, r.HumanReview, r.Account} {
		v := reflect.ValueOf(part)
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%s is not in the file, which has every member", v.Type().Field(i).Name)
			}
		}
	}
	got, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if string(got)+"\n" != string(want) {
		t.Errorf("the record became\n%s\nwant\n%s", got, want)
	}
	if clone := r.Clone(); !reflect.DeepEqual(clone, r) {
		t.Errorf("the clone is\n%+v\nwant\n%+v", clone, r)
	}
}

// A change to a clone leaves the original as it is.
func TestCloneSharesNothing(t *testing.T) {
	warm := true
	r := Record{
		Reasons: []string{"a"}, Runs: []Run{{Token: 1}}, LostRuns: []Run{{Token: 1}}, Outbox: []Event{{Token: 1}},
		HumanReview: HumanReview{Review: &Review{Note: "a"}},
		Settings: Settings{
			ExpectedDomains: []string{"a"}, SensitiveURLs: []string{"a"}, SensitiveWords: []string{"a"}, HarmlessRequests: []string{"a"}, KeepWarm: &warm,
			FenceHeaderOrigins: []string{"a"}, SessionCheck: &SessionCheck{URL: "a"}, Labels: Labels{"a": "a"},
		},
	}
	c := r.Clone()
	c.Reasons[0], c.Runs[0].Token, c.LostRuns[0].Token, c.Outbox[0].Token, c.Review.Note = "b", 2, 2, 2, "b"
	c.ExpectedDomains[0], c.SensitiveURLs[0], c.SensitiveWords[0], c.HarmlessRequests[0], *c.KeepWarm = "b", "b", "b", "b", false
	c.FenceHeaderOrigins[0], c.SessionCheck.URL, c.Labels["a"] = "b", "b", "b"
	if r.Labels["a"] != "a" || r.SessionCheck.URL != "a" || r.FenceHeaderOrigins[0] != "a" || r.Reasons[0] != "a" || r.Runs[0].Token != 1 || r.LostRuns[0].Token != 1 || r.Outbox[0].Token != 1 || r.Review.Note != "a" ||
		r.ExpectedDomains[0] != "a" || r.SensitiveURLs[0] != "a" || r.SensitiveWords[0] != "a" || r.HarmlessRequests[0] != "a" || !*r.KeepWarm {
		t.Errorf("the original became %+v", r)
	}
}
