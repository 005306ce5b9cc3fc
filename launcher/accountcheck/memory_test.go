package accountcheck

import (
	"os"
	"strings"
	"testing"
	"time"

	"leasehold/checkpoint/site"
	"leasehold/internal/test/testkey"
)

// TestAnswersAreRemembered: values as digests that nobody else can make, whose account it is without
// a text; a file that somebody else wrote says nothing.
func TestAnswersAreRemembered(t *testing.T) {
	dir := t.TempDir()
	m := NewMemory(dir, testkey.Key)
	identity := site.Question{Site: "shop", Identity: true}
	orders := site.Question{Site: "shop", Probe: site.Probe{Name: "orders"}}
	told := func(q site.Question, values string) site.Answer {
		return site.Answer{Question: q, State: site.Told, Picked: site.Picked{Values: values, Whole: true, Text: values}}
	}
	must(t, m.Keep("shop", 7, []site.Answer{told(identity, "ann@shop.example"), told(orders, "14")}, time.Now()))
	first, err := m.Load("shop")
	must(t, err)
	if k := first["shop/orders"]; k.Moved || k.Text != "14" || k.Digest == "" || k.Digest == m.Digest("other")("shop/orders", "14") {
		t.Errorf("%+v", k)
	}
	b, err := os.ReadFile(m.path("shop"))
	must(t, err)
	if strings.Contains(string(b), "ann") {
		t.Errorf("it says whose account it is: %s", b)
	}
	must(t, m.Keep("shop", 7, []site.Answer{told(orders, "15")}, time.Now()))
	must(t, m.Keep("shop", 7, nil, time.Now()))
	second, err := m.Load("shop")
	must(t, err)
	if !second["shop/orders"].Moved || second["shop"].Digest != first["shop"].Digest {
		t.Errorf("%+v", second)
	}
	must(t, m.Keep("shop", 7, []site.Answer{{Question: identity, State: site.NotTold}, {Question: orders, State: site.NotHad}}, time.Now()))
	third, err := m.Load("shop")
	must(t, err)
	if _, has := third["shop/orders"]; has || third["shop"].Digest != first["shop"].Digest {
		t.Errorf("%+v", third)
	}
	must(t, os.WriteFile(m.path("shop"), append(b, ' '), 0o600))
	if kept, err := m.Load("shop"); err == nil || len(kept) > 0 {
		t.Errorf("a file of somebody else's is believed: %+v, %v", kept, err)
	}
}
