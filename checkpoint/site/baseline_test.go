package site

import (
	"testing"
)

// TestWithWhatAnAnswerIsCompared is a table of the rule: the last answer counts that was given before the
// session did anything after the moment, and what stands in its place says so.
func TestWithWhatAnAnswerIsCompared(t *testing.T) {
	const acted = "the session acted before the site answered"
	q := Question{Site: "shop", Probe: Probe{Name: "orders"}}
	told := func(digest string) Kept { return Kept{Means: q.Means(), Digest: digest, Whole: true} }
	at := func(checkpoint uint64, name, digest string) Baseline {
		b := Baseline{Checkpoint: checkpoint, Name: name, Told: map[string]Kept{}, Missing: map[string]string{}}
		switch digest {
		case "":
		case "acted":
			b.Missing[q.ID()] = acted
		default:
			b.Told[q.ID()] = told(digest)
		}
		return b
	}
	another := at(0, "", "grant")
	another.Told[q.ID()] = Kept{Means: "another question", Digest: "grant"}
	for _, tt := range []struct {
		name                string
		all                 []Baseline
		since, sinceSafe    string // digests of the answers that count since the grant, and since checkpoint 9
		fromGrant, fromSafe string // how the comparison is told
	}{
		{"nothing was asked", nil, "rest", "rest", "as before", "as before"},
		{"the grant was answered before the worker acted", []Baseline{at(0, "", "grant")}, "grant", "grant",
			"as before, compared with the answer at the grant", "as before, compared with the answer at the grant"},
		{"and after it had acted", []Baseline{at(0, "", "acted")}, "rest", "rest",
			"as before, compared with the last answer at rest: at the grant " + acted, "as before, compared with the last answer at rest: at the grant " + acted},
		{"the site was not asked at the grant", []Baseline{at(0, "", "")}, "rest", "rest", "as before", "as before"},
		{"a checkpoint was answered", []Baseline{at(0, "", "grant"), at(9, "b", "safe")}, "grant", "safe",
			"as before, compared with the answer at the grant", "as before, compared with the answer at checkpoint b"},
		{"the worker acted after the checkpoint", []Baseline{at(0, "", "grant"), at(9, "b", "acted")}, "grant", "grant",
			"as before, compared with the answer at the grant", "as before, compared with the answer at the grant: at checkpoint b " + acted},
		{"and after the grant", []Baseline{at(0, "", "acted"), at(9, "b", "safe")}, "rest", "safe",
			"as before, compared with the last answer at rest: at the grant " + acted, "as before, compared with the answer at checkpoint b"},
		{"an earlier checkpoint was answered, the last was not", []Baseline{at(0, "", "grant"), at(4, "a", "early"), at(9, "b", "acted")}, "grant", "early",
			"as before, compared with the answer at the grant", "as before, compared with the answer at checkpoint a: at checkpoint b " + acted},
		{"nobody asked at the last checkpoint", []Baseline{at(0, "", "grant"), at(4, "a", "early")}, "grant", "early",
			"as before, compared with the answer at the grant", "as before, compared with the answer at checkpoint a"},
		{"a checkpoint that is not the last safe one", []Baseline{at(0, "", "grant"), at(12, "c", "late")}, "grant", "grant",
			"as before, compared with the answer at the grant", "as before, compared with the answer at the grant"},
		{"the file asks for something else by now", []Baseline{another}, "rest", "rest", "as before", "as before"},
	} {
		for checkpoint, want := range map[uint64][2]string{0: {tt.since, tt.fromGrant}, 9: {tt.sinceSafe, tt.fromSafe}} {
			var all []Baseline
			for _, b := range tt.all { // what is left out is not needed
				all = Add(all, b)
			}
			for _, list := range [][]Baseline{tt.all, all} {
				before, from := Before(q, told("rest"), list, checkpoint)
				c := Compare(Answer{Question: q, State: Told, Picked: Picked{Values: before.Digest, Whole: true}}, before, func(_, values string) string { return values })
				c.From = from
				if before.Digest != want[0] || c.Since() != want[1] {
					t.Errorf("%s: up to %d: %q, %q; want %q, %q", tt.name, checkpoint, before.Digest, c.Since(), want[0], want[1])
				}
			}
		}
	}
	_, from := Before(q, Kept{}, []Baseline{at(0, "", "acted")}, 0)
	c := Compare(Answer{Question: q, State: Told}, Kept{}, func(_, values string) string { return values })
	if c.From = from; c.Since() != "asked for the first time; at the grant "+acted {
		t.Errorf("without an answer at rest: %q", c.Since())
	}
}
