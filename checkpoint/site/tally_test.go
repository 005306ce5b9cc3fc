package site

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

// drawn is a tally of a few sessions of a site that has many shapes.
func drawn(r *rand.Rand, shapes, sessions int) Tally {
	t := Tally{}
	for range sessions {
		c := Count{Sessions: 1, Accounts: []string{fmt.Sprint(r.IntN(30))}, LastAt: time.Unix(r.Int64N(60*24*3600), 0).UTC()}
		switch r.IntN(3) {
		case 0:
			c.Unchanged = 1
		case 1:
			c.Changed = 1
		}
		t = t.Plus(Tally{fmt.Sprintf("POST https://shop.example/%d form(%s)", r.IntN(shapes), strings.Repeat(`"&`, r.IntN(300))): c})
	}
	return t
}

// TestCountsCommute: whatever launcher comes first, the same was counted, as long as it fits.
func TestCountsCommute(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		a, b, c := drawn(r, 5, r.IntN(20)), drawn(r, 5, r.IntN(20)), drawn(r, 5, r.IntN(20))
		before := maps.Clone(a)
		if x, y := a.Plus(b).Plus(c), c.Plus(b.Plus(a)); !reflect.DeepEqual(x, y) {
			t.Fatalf("%v\nin another order %v", x, y)
		}
		if !reflect.DeepEqual(a, before) {
			t.Fatal("a tally has changed that something was added to")
		}
	}
}

// TestCountsAreBounded: whatever is counted, the store takes it, and what comes most often lately stays.
func TestCountsAreBounded(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	last := time.Unix(60*24*3600, 0).UTC()
	const often, once = "POST https://shop.example/often", "POST https://shop.example/once"
	sum := Tally{often: {Sessions: 1000, LastAt: last}, once: {Sessions: 1000, LastAt: last.Add(-forgetAfter)}}
	for range 20 {
		sum = sum.Plus(drawn(r, 1000, 30))
		if n := len(sum.Encode()); n > MaxBytes || len(sum) > maxShapes {
			t.Fatalf("%d shapes in %d bytes", len(sum), n)
		}
		for shp, c := range sum {
			if len(c.Accounts) > MaxAccounts {
				t.Errorf("%s has %d accounts", shp, len(c.Accounts))
			}
		}
	}
	if _, has := sum[often]; !has {
		t.Error("what came most often is lost")
	}
	if _, has := sum[once]; has {
		t.Error("what came no more is still there, while there is no room")
	}
}

// TestProbesShowSomethingIfAllCanBeCompared: one that changed is enough for the other answer.
func TestProbesShowSomethingIfAllCanBeCompared(t *testing.T) {
	never := false
	f := File{Name: "shop", Origins: []string{"https://shop.example"}}
	probe := func(how string) Compared {
		c := Compared{Answer: Answer{Question: Question{file: f}}, Equal: strings.HasPrefix(how, "equal"), Moved: strings.HasPrefix(how, "moved")}
		if strings.HasSuffix(how, "no alarm") {
			c.Alarm = &never
		}
		c.Identity = strings.HasSuffix(how, "identity")
		return c
	}
	for _, tt := range []struct {
		probes             string
		unchanged, changed bool
	}{
		{"", false, false},
		{"equal", true, false},
		{"equal, unknown", false, false},
		{"equal, moved", false, true},
		{"unknown, moved", false, true},
		{"equal, moved no alarm", true, false},
		{"moved identity", false, false},
	} {
		var all []Compared
		for how := range strings.SplitSeq(tt.probes, ", ") {
			if how != "" {
				all = append(all, probe(how))
			}
		}
		if unchanged, changed := ShownAbout("https://shop.example/x", all); unchanged != tt.unchanged || changed != tt.changed {
			t.Errorf("%s: unchanged %t, changed %t", tt.probes, unchanged, changed)
		}
		if unchanged, changed := ShownAbout("https://other.example/x", all); unchanged || changed {
			t.Errorf("%s: they show something of another site", tt.probes)
		}
	}
}
