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
				rest := told("rest")
				rest.Token = 7
				before, from := Before(q, rest, 7, list, checkpoint)
				c := Compare(Answer{Question: q, State: Told, Picked: Picked{Values: before.Digest, Whole: true}}, before, func(_, values string) string { return values })
				c.From = from
				if before.Digest != want[0] || c.Since() != want[1] {
					t.Errorf("%s: up to %d: %q, %q; want %q, %q", tt.name, checkpoint, before.Digest, c.Since(), want[0], want[1])
				}
			}
		}
	}
	_, from := Before(q, Kept{}, 7, []Baseline{at(0, "", "acted")}, 0)
	c := Compare(Answer{Question: q, State: Told}, Kept{}, func(_, values string) string { return values })
	if c.From = from; c.Since() != "asked for the first time; at the grant "+acted {
		t.Errorf("without an answer at rest: %q", c.Since())
	}
}

// TestAnAnswerAtRestIsThatOfTheLastUse: one that was told before the profile was used once more proves nothing, but
// tells a change, and whose account it was. Of an older file nobody knows when it was.
func TestAnAnswerAtRestIsThatOfTheLastUse(t *testing.T) {
	all := parsed(t, shop).Questions()
	identity, probe := all[0], all[2]
	for _, tt := range []struct {
		q       Question
		told    uint64
		earlier bool
		says    string
	}{
		{probe, 7, false, "as before"},
		{probe, 6, true, "as before, compared with the last answer at rest: the profile may have been used since then, so that it covers nothing"},
		{probe, 8, true, "as before, compared with the last answer at rest: the profile may have been used since then, so that it covers nothing"},
		{probe, 0, true, "as before, compared with the last answer at rest: the profile may have been used since then, so that it covers nothing"},
		{identity, 6, false, "as before"},
	} {
		rest := Kept{Means: tt.q.Means(), Digest: "rest", Whole: true, Token: tt.told}
		before, from := Before(tt.q, rest, 7, nil, 0)
		c := Compare(Answer{Question: tt.q, State: Told, Picked: Picked{Values: "rest", Whole: true}}, before, func(_, values string) string { return values })
		c.From = from
		unchanged, changed := ShownAbout("https://shop.example/", []Compared{c})
		if !c.Equal || from.Earlier != tt.earlier || c.Since() != tt.says || unchanged == tt.earlier && !tt.q.Identity || changed {
			t.Errorf("%s told under %d: %+v, %q, unchanged %t, changed %t", tt.q.ID(), tt.told, from, c.Since(), unchanged, changed)
		}
	}
	if _, from := Before(probe, Kept{Means: probe.Means()}, 0, nil, 0); !from.Earlier {
		t.Error("an answer without a token counts for a profile that had none")
	}
}
