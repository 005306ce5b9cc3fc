package site

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func parsed(t *testing.T, text string) File {
	t.Helper()
	f, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestWhatIsPickedOutOfAnAnswer, and what is no value.
func TestWhatIsPickedOutOfAnAnswer(t *testing.T) {
	t.Parallel()
	const orders = `{"total": 14, "items": [{"title": "lamp, 29.90", "updated": "2026-11-26"}], "none": null, "key": "9f8e7d6c5b4a39281706"}`
	const page = `<p class="a b">Hello <b id=unread>3 <i>new</i></b></p><div data-x="1">one</div><div data-x="2">two</div>`
	for _, tt := range []struct {
		probe  Probe
		body   string
		values string // empty: there is no value
		whole  bool
		text   string
	}{
		{Probe{Take: []string{"$.total"}}, orders, `["14"]`, true, "14"},
		{Probe{Take: []string{"$.total", "$.items[0].updated"}, Show: "$.items[0].title"}, orders, `["14","2026-11-26"]`, true, "14, 2026-11-26 (lamp, 29.90)"},
		{Probe{Take: []string{"$.total", "$.items[1].updated"}}, orders, `["14",false]`, false, "14"},
		{Probe{Take: []string{"$.items[1].updated"}}, orders, "", false, ""},
		{Probe{Take: []string{"$.none"}}, orders, "", false, ""},
		{Probe{Take: []string{"$.key"}}, orders, `["9f8e7d6c5b4a39281706"]`, true, "REDACTED"},
		{Probe{Take: []string{"$.total"}}, `{"total": 12345678901234567890}`, `["12345678901234567890"]`, true, "12345678901234567890"},
		{Probe{Take: []string{"$.total"}}, `<html>Sign in`, "", false, ""},
		{Probe{Take: []string{"$.total"}}, ``, "", false, ""},
		{Probe{Take: []string{"$.total"}}, `{"total": 14} and more`, "", false, ""},
		{Probe{Take: []string{"$.total"}}, `{"total": 14}{"total": 15}`, "", false, ""},
		{Probe{Take: []string{"$.total"}}, " {\"total\": 14}\r\n", `["14"]`, true, "14"},
		{Probe{Take: []string{"$.total", "$.none"}}, orders, `["14",null]`, false, "14"},
		{Probe{Take: []string{"$.items[*].paid"}}, `{"items": [{"paid": "a"}, {"paid": null}]}`, `[["a",null]]`, true, "a"},
		{Probe{Take: []string{"$.items[*].paid"}}, `{"items": [{"paid": "a"}, {}]}`, `[["a",false]]`, false, "a"},
		{Probe{Take: []string{"$.items[*]['paid', 'sent']"}}, `{"items": [{"sent": "a"}]}`, `[[[false,"a"]]]`, false, "a"},
		{Probe{Take: []string{"$.items[*].tags[*]"}}, `{"items": [{"tags": [1, 2]}, {"tags": [3]}, {"tags": []}]}`, `[[["1","2"],["3"],[]]]`, true, "1, 2, 3"},
		{Probe{Take: []string{"$.items[*].tags[*]"}}, `{"items": [{"tags": [1, 2]}, {"id": 3}]}`, `[[["1","2"],false]]`, false, "1, 2"},
		{Probe{Take: []string{"$.items[?@.open].n"}}, `{"items": [{"n": 1, "open": true}, {"n": 2}]}`, `[["1"]]`, true, "1"},
		{Probe{Take: []string{"$.counts.*"}}, `{"counts": {"c": 3, "a": 1, "d": 4, "b": 2}}`, `[["1","2","3","4"]]`, true, "1, 2, 3, 4"},
		{Probe{Take: []string{"$..n"}}, `{"n": 1, "more": {"n": {"n": null}}}`, `[["{\"n\":null}",null,"1"]]`, true, `{"n":null}, 1`},
		{Probe{Take: []string{"$.a[*]", "$.b[*]"}}, `{"a": ["1"], "b": ["", "2"]}`, `[["1"],["","2"]]`, true, "1, 2"},
		{Probe{Take: []string{"$.a[*]", "$.b[*]"}}, `{"a": ["1", ""], "b": ["2"]}`, `[["1",""],["2"]]`, true, "1, 2"},
		{Probe{Take: []string{"$.a[*]"}, Show: "$.b[*]"}, `{"a": ["1"], "b": ["x", null, "y"]}`, `[["1"]]`, true, "1 (x, y)"},
		{Probe{TakeText: "#unread"}, page, `["3 new"]`, true, "3 new"},
		{Probe{TakeText: "p.b #unread", Match: "[0-9]+"}, page, `["3"]`, true, "3"},
		{Probe{TakeText: "#unread", Match: "[0-9]{4}"}, page, "", false, ""},
		{Probe{Take: []string{"$.total", "$.key"}, Match: "^[0-9]+$"}, orders, `["14",""]`, false, "14"},
		{Probe{Take: []string{"$.total", "$.key"}, Match: "^[0-9]*"}, `{"total": 14, "key": "n/a"}`, `["14",""]`, false, "14"},
		{Probe{Take: []string{"$.items[*].n"}, Match: "[0-9]+"}, `{"items": [{"n": "1 lamp"}, {"n": "none"}]}`, `[["1",""]]`, false, "1"},
		{Probe{Take: []string{"$.total", "$.key"}}, `{"total": 14, "key": ""}`, `["14",""]`, true, "14"},
		{Probe{TakeText: "div[data-x='2']", Show: "div"}, page, `["two"]`, true, "two (one two)"},
		{Probe{TakeText: "p div"}, page, "", false, ""},
		{Probe{TakeText: "*.a"}, page, `["Hello 3 new"]`, true, "Hello 3 new"},
		{Probe{TakeText: "p"}, "<p>" + strings.Repeat("a", maxValues), "", false, ""},
	} {
		got, err := Question{Probe: tt.probe}.Pick([]byte(tt.body))
		if (err == nil) != (tt.values != "") || got.Values != tt.values || got.Whole != tt.whole || got.Text != tt.text {
			t.Errorf("%+v: %+v, %v", tt.probe, got, err)
		}
	}
	if _, err := (Question{Probe: Probe{Take: []string{"$.a"}}}).Pick([]byte("{}")); !errors.Is(err, ErrNoValue) {
		t.Errorf("an answer without the value: %v, want %v", err, ErrNoValue)
	}
}

// TestWhichQuestionsAreAsked: of the sites that were visited, and of those where the account belongs.
func TestWhichQuestionsAreAsked(t *testing.T) {
	t.Parallel()
	b, wrong := NewBook([]File{
		parsed(t, shop+"bearer_from: localStorage.token\n"),
		parsed(t, "name: bank\norigins: [\"https://*.bank.example\"]\nprobes: [{name: a, get: \"https://my.bank.example/a\", take_text: b}]\n"),
		parsed(t, "name: plain\norigins: [\"https://plain.example\"]\n"),
	})
	if wrong != nil {
		t.Fatal(wrong)
	}
	for _, tt := range []struct {
		urls, domains []string
		want          string
	}{
		{nil, nil, ""},
		{[]string{"https://shop.example/a", "https://plain.example/"}, nil, "shop shop/orders shop/cart shop/inbox"},
		{[]string{"https://www.bank.example/"}, nil, "bank/a"},
		{[]string{"https://bank.example/", "http://shop.example/"}, nil, ""},
		{nil, []string{"Bank.example"}, "bank/a"},
		{nil, []string{".example"}, "shop bank/a shop/orders shop/cart shop/inbox"},
		{nil, []string{"ank.example", ""}, ""},
		{nil, []string{"Eu.bank.example"}, "bank/a"}, // a wildcard is also of the hosts below it
		{nil, []string{"a.eu.bank.example"}, "bank/a"},
		{nil, []string{"www.shop.example"}, "shop shop/orders shop/cart shop/inbox"},
		{nil, []string{"eubank.example", "www.plain.example"}, ""},
	} {
		var got []string
		for _, q := range b.Questions(tt.urls, tt.domains) {
			got = append(got, q.ID())
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%q %q: %q, want %q", tt.urls, tt.domains, got, tt.want)
		}
	}
	tenants, wrong := NewBook([]File{parsed(t, "name: tenants\norigins: [\"https://acme.tenants.example\", \"https://*.tenants.example\"]\nidentity: {get: \"https://acme.tenants.example/me\", take: [\"$.name\"]}\n")})
	if wrong != nil {
		t.Fatal(wrong)
	}
	for domain, want := range map[string]int{"beta.tenants.example": 0, "acme.tenants.example": 1, "tenants.example": 1} {
		questions, identities := tenants.Questions(nil, []string{domain}), tenants.Identities("", []string{domain}, func(Question) bool { return false })
		if len(questions) != want || len(identities) != want {
			t.Errorf("whose account it is at acme.tenants.example is asked of an account of %s: %d, %d, want %d", domain, len(questions), len(identities), want)
		}
	}
	q := b.Questions([]string{"https://shop.example/"}, nil)[2]
	if q.URL != "https://shop.example/api/cart" || q.Headers["X-Requested-With"] != "leasehold" || q.Bearer != "token" || !q.Alarms() {
		t.Errorf("%+v", q)
	}
	for shp, want := range map[string]bool{
		"POST https://shop.example/cart form(id)":    true,
		"POST https://shop.example/cart/{}":          true,
		"POST https://shop.example/pay form(id)":     false,
		"DELETE https://shop.example/cart":           false,
		"POST https://other.example/cart form(id)":   false,
		"POST https://shop.example/cart/../pay":      false,
		"POST https://www.shop.example/cart/a/b":     false,
		"POST https://api.shop.example/cart json(a)": true,
	} {
		raw := strings.Fields(shp)[1]
		if got := q.Covers(shp, raw, true); got != want || b.Covers(shp, raw, true) != want {
			t.Errorf("%s: %t, %t", shp, got, b.Covers(shp, raw, true))
		}
		if q.Covers(shp, raw, false) || b.Covers(shp, raw, false) {
			t.Errorf("%s is covered although it may do more than its shape tells", shp)
		}
	}
	if a := b.AskFor("https://shop.example/me"); a.Bearer != "token" || a.URL != "https://shop.example/me" {
		t.Errorf("%+v", a)
	}
	if a := b.AskFor("https://other.example/me"); a.Bearer != "" || a.Headers != nil {
		t.Errorf("%+v", a)
	}
}

// TestAnIdentityIsAlwaysAsked, however many probes the files before its own have.
func TestAnIdentityIsAlwaysAsked(t *testing.T) {
	t.Parallel()
	many := "name: a\norigins: [\"https://shop.example\"]\nprobes:\n"
	for i := range MaxQuestions {
		many += fmt.Sprintf("  - {name: p%d, get: /p, take: [\"$.n\"]}\n", i)
	}
	b, wrong := NewBook([]File{parsed(t, many), parsed(t, shop)})
	if wrong != nil {
		t.Fatal(wrong)
	}
	got := b.Questions(nil, []string{"shop.example"})
	if len(got) != MaxQuestions || got[0].ID() != "shop" {
		t.Errorf("%d are asked, the first %s", len(got), got[0].ID())
	}
	var files []File
	for i := range MaxQuestions + 1 {
		files = append(files, parsed(t, strings.Replace(shop, "name: shop", fmt.Sprintf("name: shop%d", i), 1)))
	}
	if b, wrong = NewBook(files); wrong != nil {
		t.Fatal(wrong)
	}
	never := func(Question) bool { return false }
	if got, identities := b.Questions(nil, []string{"shop.example"}), b.Identities("", []string{"shop.example"}, never); len(got) != len(files) || len(identities) != len(files) {
		t.Errorf("%d and %d identities are asked of %d", len(got), len(identities), len(files))
	}
}

// TestAnAnswerIsEqualOnlyToTheSameWholeAnswer to the same question.
func TestAnAnswerIsEqualOnlyToTheSameWholeAnswer(t *testing.T) {
	t.Parallel()
	digest := func(id, values string) string { return id + "#" + values }
	q := Question{Site: "shop", Probe: Probe{Name: "orders", Get: "/o", Take: []string{"$.total"}}}
	told := func(values string, whole bool) Answer {
		return Answer{Question: q, State: Told, Picked: Picked{Values: values, Whole: whole, Text: values}}
	}
	kept := func(values string, whole, moved bool) Kept {
		return Kept{Means: q.Means(), Digest: digest(q.ID(), values), Whole: whole, Text: values, Moved: moved, At: time.Now()}
	}
	other := q
	other.Take = []string{"$.sum"}
	gone := Answer{Question: q, State: NotTold, How: "a redirect"}
	for _, tt := range []struct {
		answer       Answer
		before       Kept
		equal, moved bool
		tell         string
	}{
		{told("14", true), kept("14", true, true), true, false, "shop: orders: 14, as before"},
		{told("14", true), kept("14", true, false), true, false, "shop: orders: 14, as before (never seen to change)"},
		{told("15", true), kept("14", true, false), false, true, "shop: orders: 14, now 15"},
		{told("14", false), kept("14", false, true), false, false, "shop: orders: 14, as before"},
		{told("14", true), Kept{}, false, false, "shop: orders: 14, asked for the first time"},
		{told("14", true), Kept{Means: other.Means(), Digest: digest(q.ID(), "14"), Whole: true}, false, false, "shop: orders: 14, asked for the first time"},
		{gone, kept("", true, true), false, false, "shop: orders: a redirect"},
	} {
		c := Compare(tt.answer, tt.before, digest)
		if c.Equal != tt.equal || c.Moved != tt.moved || c.Tell() != tt.tell {
			t.Errorf("%+v beside %+v: equal %t, moved %t, %q", tt.answer.Picked, tt.before, c.Equal, c.Moved, c.Tell())
		}
	}
	if got := Compare(told("15", true), kept("14", true, true), digest).Brief(); got != "shop: orders: not what it was" {
		t.Errorf("in a record stands %q", got)
	}
	q.Identity = true
	for values, want := range map[string]string{"ann@shop.example": "shop: orders: as before", "bob@shop.example": "shop: orders: another account than before"} {
		if got := Compare(told(values, true), kept("ann@shop.example", true, true), digest); got.Tell() != want || got.Brief() != want {
			t.Errorf("%q, want %q", got.Tell(), want)
		}
	}
}

// FuzzPick: answers of which the same is picked out, all of it, are the same where every value is picked out.
func FuzzPick(f *testing.F) {
	f.Add(`["1"]`, `["", "2"]`, `["1", ""]`, `["2"]`)
	f.Add(`["a"]`, `[]`, `["a", null]`, `[]`)
	f.Add(`[null, "false"]`, `[["1"], "2"]`, `["null", false]`, `["1", ["2"]]`)
	q := Question{Probe: Probe{Take: []string{"$.a[*]", "$.b[*]"}}}
	f.Fuzz(func(t *testing.T, a, b, a2, b2 string) {
		one, two := `{"a":`+a+`,"b":`+b+`}`, `{"a":`+a2+`,"b":`+b2+`}`
		p, err := q.Pick([]byte(one))
		r, err2 := q.Pick([]byte(two))
		if err != nil || err2 != nil || p.Values != r.Values || !p.Whole || !r.Whole {
			return
		}
		if x, y := texts(t, one), texts(t, two); !reflect.DeepEqual(x, y) {
			t.Errorf("of %s and of %s is picked out %s", one, two, p.Values)
		}
	})
}

// texts are the elements of the lists a and b, as far as Pick tells values apart: each as a text, null as none.
func texts(t *testing.T, body string) (all [2][]string) {
	d := json.NewDecoder(strings.NewReader(body))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"a", "b"} {
		var each []any
		switch list := v[name].(type) {
		case []any:
			each = list
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(list)) {
				each = append(each, list[key])
			}
		}
		for _, one := range each {
			switch one := one.(type) {
			case nil:
				all[i] = append(all[i], "none")
			case string:
				all[i] = append(all[i], "="+one)
			default:
				b, _ := json.Marshal(one)
				all[i] = append(all[i], "="+string(b))
			}
		}
	}
	return all
}
