package findings

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"leasehold/checkpoint"
	"leasehold/launcher/recovery/table"
)

func TestParseHarmless(t *testing.T) {
	for text, want := range map[string]string{
		"POST https://shop.example/search":                   "",
		"POST https://shop.example:8443/a/*/b?*":             "",
		"POST http://bank.example/rpc method=getBalances id": "NAME=VALUE",
		"WEBSOCKET wss://chat.example/socket type=ping":      "",
		"":                                      "METHOD URL",
		"POST":                                  "METHOD URL",
		"PUT https://shop.example/draft":        "method PUT",
		"post https://shop.example/search":      "method post",
		"DELETE https://shop.example/x":         "method DELETE",
		"POST /search":                          "whole URL",
		"POST wss://shop.example/search":        "whole URL",
		"WEBSOCKET https://shop.example/search": "whole URL",
		"POST https://shop.example":             "whole URL",
		"POST https://*.shop.example/search":    "host",
		"POST https://Shop.example/search":      "host",
		"POST https://ann@shop.example/search":  "user",
		"POST https://shop.example/search#x":    "fragment",
	} {
		h, err := ParseHarmless(text)
		switch {
		case want == "" && (err != nil || h.text != text):
			t.Errorf("%s: %v, read as %q", text, err, h.text)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want an error with %s", text, err, want)
		}
	}
}

func TestHarmlessCovers(t *testing.T) {
	const (
		search  = "POST https://shop.example/search"
		rpc     = "POST https://bank.example/rpc method=getBalances"
		graphql = "POST https://feed.example/api/graphql"
		stored  = "POST https://feed.example/api/graphql operationName=Feed"
		token   = "POST https://bank.example/oauth/token grant_type=refresh_token"
		ping    = "WEBSOCKET wss://chat.example/socket type=ping"
	)
	feed := "https://feed.example/api/graphql"
	for _, tt := range []struct {
		name, declared, url, body string
		want                      bool
	}{
		{"the same URL", search, "https://shop.example/search", "q=shoes", true},
		{"without a body", search, "https://shop.example/search", "", true},
		{"with a query", search, "https://shop.example/search?all=1", "", false},
		{"below it", search, "https://shop.example/search/delete", "", false},
		{"another host", search, "https://evil.example/search", "", false},
		{"a host that only ends so", search, "https://myshop.example/search", "", false},
		{"another scheme", search, "http://shop.example/search", "", false},
		{"another port", search, "https://shop.example:8443/search", "", false},
		{"a dot is a dot", "POST https://shop.example/a.b", "https://shop.example/aXb", "", false},
		{"a star is one part of the path", "POST https://shop.example/*/find", "https://shop.example/de-AT/find", "", true},
		{"and not two", "POST https://shop.example/*/find", "https://shop.example/a/b/find", "", false},
		{"nor none", "POST https://shop.example/*/find", "https://shop.example//find", "", false},
		{"nor what is escaped", "POST https://shop.example/*/find", "https://shop.example/a%2Fb/find", "", false},
		{"any query", search + "?*", "https://shop.example/search?a=1&b", "", true},
		{"any query, none", search + "?*", "https://shop.example/search", "", true},
		{"one query", search + "?all=1", "https://shop.example/search?all=1", "", true},
		{"another one", search + "?all=1", "https://shop.example/search?all=10", "", false},

		{"a field", rpc, "https://bank.example/rpc", `{"id":1,"method":"getBalances"}`, true},
		{"another value", rpc, "https://bank.example/rpc", `{"id":1,"method":"moveMoney"}`, false},
		{"no such field", rpc, "https://bank.example/rpc", `{"id":1}`, false},
		{"further down", rpc, "https://bank.example/rpc", `{"params":{"method":"getBalances"}}`, false},
		{"twice", rpc, "https://bank.example/rpc", `{"method":"moveMoney","method":"getBalances"}`, false},
		{"a list of such", rpc, "https://bank.example/rpc", `[{"method":"getBalances"},{"method":"getBalances"}]`, true},
		{"a list with another", rpc, "https://bank.example/rpc", `[{"method":"getBalances"},{"method":"moveMoney"}]`, false},
		{"an empty list", rpc, "https://bank.example/rpc", `[]`, false},
		{"null", rpc, "https://bank.example/rpc", `null`, false},
		{"something behind it", rpc, "https://bank.example/rpc", `{"method":"getBalances"}{"method":"moveMoney"}`, false},
		{"no JSON", rpc, "https://bank.example/rpc", `getBalances`, false},
		{"nothing", rpc, "https://bank.example/rpc", ``, false},
		{"a number", "POST https://bank.example/rpc op=3", "https://bank.example/rpc", `{"op":3}`, true},
		{"a form", token, "https://bank.example/oauth/token", "grant_type=refresh_token&refresh_token=x", true},
		{"another form", token, "https://bank.example/oauth/token", "grant_type=password&password=x", false},
		{"another name twice", rpc, "https://bank.example/rpc", `{"id":1,"id":2,"method":"getBalances"}`, true},
		{"a form with another name twice", token, "https://bank.example/oauth/token", "scope=a&scope=b&grant_type=refresh_token", true},
		{"a form with it twice", token, "https://bank.example/oauth/token", "grant_type=refresh_token&grant_type=password", false},

		{"a form's fields in a text of JSON", rpc, "https://bank.example/rpc", `{"method":"transfer","back":"https://x/?a=1&method=getBalances&b=2"}`, false},
		{"behind white space", rpc, "https://bank.example/rpc", " \n\ufeff" + `[{"method":"transfer","back":"&method=getBalances&"}]`, false},
		{"in a list", rpc, "https://bank.example/rpc", `["transfer","&method=getBalances&"]`, false},
		{"in broken JSON", rpc, "https://bank.example/rpc", `{"method":"transfer","back":"&method=getBalances&`, false},
		{"in a text alone", rpc, "https://bank.example/rpc", `"transfer&method=getBalances&"`, false},
		{"in a message", ping, "wss://chat.example/socket", `42["transfer","&type=ping&"]`, false},
		{"a query", graphql, feed, `{"query":"query Feed { feed { id } }"}`, true},
		{"in short", graphql, feed, `{"query":"{ feed { id } }"}`, true},
		{"behind a comment", graphql, feed, `{"query":"# the feed\n  query { feed { id } }"}`, true},
		{"with fragments", graphql, feed, `{"query":"fragment F on Post { id } query { feed { ...F } }"}`, true},
		{"several", graphql, feed, `[{"query":"{ a }"},{"query":"query { b }"}]`, true},
		{"a mutation", graphql, feed, `{"query":"mutation { like(id: 1) { id } }"}`, false},
		{"behind a query", graphql, feed, `{"query":"query A { a } mutation B { b }","operationName":"B"}`, false},
		{"one of several", graphql, feed, `[{"query":"{ a }"},{"query":"mutation { b }"}]`, false},
		{"with escapes", graphql, feed, `{"query":"\u006dutation { like }"}`, false},
		{"in capitals", graphql, feed, `{"query":"MUTATION { like }"}`, false},
		{"a subscription", graphql, feed, `{"query":"subscription { a }"}`, false},
		{"stored", graphql, feed, `{"operationName":"Like","extensions":{"persistedQuery":{"sha256Hash":"1"}}}`, false},
		{"stored, and named", stored, feed, `{"operationName":"Feed","extensions":{}}`, true},
		{"stored, and another", stored, feed, `{"operationName":"Like","extensions":{}}`, false},
		{"named like a query", stored, feed, `{"operationName":"Feed","query":"mutation Feed { like }"}`, false},
		{"nothing at all", graphql, feed, ``, false},
		{"a form", graphql, feed, `query=%7B+a+%7D`, false},
		{"a mutation in a form", "POST https://feed.example/q", "https://feed.example/q", `query=%6Dutation+%7B+a+%7D`, false},
		{"a mutation, where the URL does not tell", "POST https://feed.example/q", "https://feed.example/q", `{"query":"mutation { like }"}`, false},

		{"a message", ping, "wss://chat.example/socket", `{"type":"ping","n":7}`, true},
		{"another message", ping, "wss://chat.example/socket", `{"type":"message","text":"ping"}`, false},
		{"any message", "WEBSOCKET wss://chat.example/socket", "wss://chat.example/socket", `2`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, err := ParseHarmless(tt.declared)
			if err != nil {
				t.Fatal(err)
			}
			s := Sent{Method: h.method, URL: tt.url, Body: tt.body, Whole: true}
			isForm := strings.Contains(tt.name, "form")
			if got := h.Covers(s); got != (tt.want && !isForm) {
				t.Errorf("%s covers %s %s: %v", tt.declared, tt.url, tt.body, got)
			}
			s.Form = h.method == "POST"
			if got := h.Covers(s); got != tt.want {
				t.Errorf("%s covers %s %s, sent as a form: %v", tt.declared, tt.url, tt.body, got)
			}
			s.Whole = false
			if h.Covers(s) {
				t.Error("a body that is not known is covered")
			}
			s.Whole, s.Method = true, "PUT"
			if h.Covers(s) {
				t.Error("a PUT is covered")
			}
		})
	}
	if (Harmless{}).Covers(Sent{Whole: true}) {
		t.Error("the zero value covers something")
	}
}

// TestIsForm: a request is a form only if its headers leave no doubt.
func TestIsForm(t *testing.T) {
	for _, tt := range []struct {
		headers map[string]string
		want    bool
	}{
		{nil, false},
		{map[string]string{"Accept": "application/x-www-form-urlencoded"}, false},
		{map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, true},
		{map[string]string{"content-type": "Application/X-WWW-Form-URLEncoded;charset=UTF-8"}, true},
		{map[string]string{"Content-Type": "application/json"}, false},
		{map[string]string{"Content-Type": "text/plain;charset=UTF-8"}, false},
		{map[string]string{"Content-Type": "application/x-www-form-urlencoded, application/json"}, false},
		{map[string]string{"Content-Type": "application/x-www-form-urlencoded", "content-type": "application/json"}, false},
	} {
		if got := IsForm(tt.headers); got != tt.want {
			t.Errorf("%v: %v", tt.headers, got)
		}
	}
}

// A method in a header is not what was declared.
func TestHarmlessIsNotOverridden(t *testing.T) {
	h, err := ParseHarmless("POST https://shop.example/search")
	s := Sent{Method: "POST", URL: "https://shop.example/search", Whole: true}
	plain := h.Covers(s)
	s.Overridden = IsOverridden(map[string]string{"X-HTTP-Method-Override": "DELETE"})
	if err != nil || !plain || h.Covers(s) {
		t.Errorf("plain %t, overridden %t, %v", plain, h.Covers(s), err)
	}
}

// FuzzHarmless: no body that contains the word mutation is covered, and no JSON because
// of the content of a string in it. A declaration that was parsed can be parsed again.
func FuzzHarmless(f *testing.F) {
	f.Add("POST https://a.example/graphql", `{"query":"mutation { a }"}`)
	f.Add("POST https://a.example/* x=y", `[{"x":"y"},{"x":"\u006dutation"}]`)
	f.Add("POST https://a.example/* x=y", `&x=y&`)
	f.Add("POST https://a.example/graphql", `[{"query":"{ a }","variables":{}}]`)
	f.Fuzz(func(t *testing.T, text, body string) {
		h, err := ParseHarmless(text)
		if err != nil {
			return
		}
		again, err := ParseHarmless(h.text)
		s := Sent{Method: h.method, URL: strings.Fields(h.text)[1], Body: body, Whole: true}
		if err != nil || again.Covers(s) != h.Covers(s) {
			t.Errorf("%q: %v", text, err)
		}
		if s.Form = true; looksLikeJSON(body) && h.Covers(s) != again.Covers(Sent{Method: s.Method, URL: s.URL, Body: body, Whole: true}) {
			t.Errorf("%q: %q is JSON, and read as a form", text, body)
		}
		if quoted, err := json.Marshal(body); err == nil {
			s.Body = `{"text":` + string(quoted) + `}`
			if len(h.fields) > 0 && !slices.ContainsFunc(h.fields, func(f field) bool { return f.name == "text" }) && h.Covers(s) {
				t.Errorf("%q covers %q", text, s.Body)
			}
			s.Body = body
		}
		if h.Covers(s) && strings.Contains(strings.ToLower(body), " mutation") {
			t.Errorf("%q covers %q", text, body)
		}
		if IsQuery(Sent{Method: "POST", Body: body, Whole: true}) && (!json.Valid([]byte(body)) || strings.Contains(strings.ToLower(body), "mutation")) {
			t.Errorf("%q passes for queries", body)
		}
	})
}

// TestIsQuery: only the whole text of queries is one.
func TestIsQuery(t *testing.T) {
	for body, want := range map[string]bool{
		`{"query":"query Feed { feed { id } }"}`:                                      true,
		`{"query":"{ a }","variables":{"id":1},"operationName":null,"extensions":{}}`: true,
		`[{"query":"{ a }"},{"query":"fragment F on P { id } query { ...F }"}]`:       true,
		`{"query":"mutation { like }"}`:                                               false,
		`{"query":"query A { a } mutation B { b }","operationName":"B"}`:              false,
		`{"query":"subscription { a }"}`:                                              false,
		`[{"query":"{ a }"},{"query":"mutation { b }"}]`:                              false,
		`{"operationName":"Feed","extensions":{"persistedQuery":{"sha256Hash":"1"}}}`: false,
		`{"query":"{ a }","extensions":{"persistedQuery":{"sha256Hash":"1"}}}`:        false,
		`{"query":"{ a }","id":"stored"}`:                                             false,
		`{"query":"{ a }","query":"{ b }"}`:                                           false,
		`query=%7B+a+%7D`:                                                             false, `{"query":{"match":{}}}`: false, `[]`: false, `null`: false, ``: false,
	} {
		if got := IsQuery(Sent{Method: "POST", URL: "https://shop.example/api", Body: body, Whole: true}); got != want {
			t.Errorf("%s: %v", body, got)
		}
		if IsQuery(Sent{Method: "POST", URL: "https://shop.example/api?query=mutation{buy}", Body: body, Whole: true}) ||
			IsQuery(Sent{Method: "POST", URL: "https://shop.example/api", Body: body, Whole: true, Overridden: true}) {
			t.Errorf("%s: the URL, or a header, says what is done", body)
		}
		if IsQuery(Sent{Method: "POST", Body: body}) || IsQuery(Sent{Method: "PUT", Body: body, Whole: true}) {
			t.Errorf("%s, of which a part is not known, or by PUT", body)
		}
	}
}

// TestAQueryIsARead, if it was answered with something to read, or refused.
func TestAQueryIsARead(t *testing.T) {
	asked := func(change func(*checkpoint.Entry)) checkpoint.Entry {
		e := sent("Fetch", "POST", "http://shop/api")
		e.Name, e.Status = checkpoint.GraphQLQuery, 200
		change(&e)
		return e
	}
	for name, tt := range map[string]struct {
		change func(*checkpoint.Entry)
		want   table.Answer
	}{
		"answered":                         {func(*checkpoint.Entry) {}, table.No},
		"refused":                          {func(e *checkpoint.Entry) { e.Status = 403 }, table.No},
		"not answered":                     {func(e *checkpoint.Entry) { e.Status = 0 }, table.Yes},
		"answered with no content":         {func(e *checkpoint.Entry) { e.Status = 204 }, table.Yes},
		"to a sensitive place":             {func(e *checkpoint.Entry) { e.URL = "http://shop/checkout" }, table.Yes},
		"sensitive before it was redacted": {func(e *checkpoint.Entry) { e.Sensitive = true }, table.Yes},
		"no query":                         {func(e *checkpoint.Entry) { e.Name = "" }, table.Yes},
	} {
		s := checkpoint.Summary{Unsafe: []checkpoint.Entry{asked(tt.change)}}
		if got := InspectTask(s, Task{}).Answer(table.UnsafeRequests); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// TestDeclaredHarmless: a declaration counts if it was there when the request was sent
// and is still there.
func TestDeclaredHarmless(t *testing.T) {
	const text = "POST http://shop/search"
	declared := sent("Fetch", "POST", "http://shop/search")
	declared.Declared = text
	usual := declared
	usual.URL = "http://shop/checkout/search"
	hidden := declared
	hidden.Sensitive = true
	for _, tt := range []struct {
		name    string
		journal []checkpoint.Entry
		task    Task
		want    string
	}{
		{"declared", []checkpoint.Entry{declared}, Task{Harmless: []string{text}}, table.Release},
		{"not any more", []checkpoint.Entry{declared}, Task{}, table.ManualReview},
		{"not yet", []checkpoint.Entry{sent("Fetch", "POST", "http://shop/search")}, Task{Harmless: []string{text}}, table.ManualReview},
		{"beside another", []checkpoint.Entry{declared, post("http://shop/api")}, Task{Harmless: []string{text}}, table.ManualReview},
		{"in a place that is usually sensitive", []checkpoint.Entry{usual}, Task{Harmless: []string{text}}, table.Release},
		{"in one that the task called sensitive before it was redacted", []checkpoint.Entry{hidden}, Task{Harmless: []string{text}}, table.ManualReview},
		{"in one that the task calls sensitive", []checkpoint.Entry{declared}, Task{Harmless: []string{text}, SensitiveURLs: []string{"/search"}}, table.ManualReview},
		{"in one with a word of the task's", []checkpoint.Entry{declared}, Task{Harmless: []string{text}, SensitiveWords: []string{"search"}}, table.ManualReview},
		{"since the checkpoint", []checkpoint.Entry{post("/"), safe("a"), declared}, Task{Harmless: []string{text}, Resumable: true}, table.Resume},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found := InspectTask(checkpoint.Summarize(tt.journal), tt.task)
			if d := table.Decide(append(sane(), found...)); d.Outcome != tt.want {
				t.Errorf("%s %q, want %s", d.Outcome, d.Reasons, tt.want)
			}
		})
	}
	found := InspectTask(checkpoint.Summarize([]checkpoint.Entry{declared}), Task{Harmless: []string{text}})
	if found.Answer(table.HarmlessSent) != table.Yes || !strings.Contains(found.How(table.UnsafeRequests), text) {
		t.Errorf("%+v", found)
	}
}

// TestSensitiveRoutes: sites that name their pages in the query are read like others. What somebody
// looked for, and where to go next, names no page.
func TestSensitiveRoutes(t *testing.T) {
	for raw, want := range map[string]bool{
		"https://shop.example/admin.php?page=checkout-settings":    true,
		"https://shop.example/index.php?route=/account/delete&x=1": true,
		"https://shop.example/?rest_route=/wp/v2/settings":         true,
		"https://shop.example/?wc-ajax=checkout":                   true,
		"https://shop.example/wp-admin/options.php":                true,
		"https://shop.example/app#/settings?tab=1":                 true,
		"https://shop.example/?page=2":                             false,
		"https://shop.example/?q=checkout&next=/settings":          false,
		"https://shop.example/search?text=delete":                  false,
	} {
		if got := SensitiveURL(raw, Task{}); got != want {
			t.Errorf("%s: %t, want %t", raw, got, want)
		}
	}
}

// TestSensitivePlaces: the sensitive places are found under their usual names, and
// pages that people only read are not sensitive.
func TestSensitivePlaces(t *testing.T) {
	for _, name := range []string{
		"after_clicking_submit", "submit_budget_change", "/checkout", "/checkouts/cn/abc", "/till/place-order", "/top-up", "/account/settings", "/account/edit", "/preferences",
		"/verify", "/account/verification", "/challenge", "login_failed", "/login/error", "/signin/failed", "sign-in failed", "failed login attempt", "/auth/denied",
		"/forgot-password", "reset_password", "/mfa", "/two-factor", "/2fa", "/second-factor", "enter_one_time_code", "/backup-codes", "/account/recovery", "/passkeys",
		"/campaigns/7/edit", "edit_campaign", "/campaigns/new", "/adsets/7/edit", "/ad-groups/new", "/budgets/7/edit", "save_bids", "/audiences/create",
		"/billing", "/billing/history", "/wallet", "/wallets/1", "/payouts", "/payout/new", "/transfers", "/withdrawals", "/refunds/3", "/cards/add", "/beneficiaries",
		"/3ds/start", "/unsubscribe", "invite_member",
	} {
		if !sensitiveName(name, nil) {
			t.Errorf("%s is not sensitive", name)
		}
	}
	for _, name := range []string{
		"/", "/products", "/products/red-shoes", "/category/women/page-2", "/cart", "/orders", "/orders.csv", "/search", "/feed", "/posts/12345", "/people/ann", "/profile/ann",
		"/inbox", "/messages/17", "/notifications", "/dashboard", "/reports/2026/10", "/campaigns", "/campaigns/7", "/audiences", "/ads", "/accounts", "/statements/2026-10",
		"/transactions", "/help/cards", "/blog/2026/news", "/about/privacy", "/login", "/films/3", "/notes/7", "open_campaign_list", "read_rows", "step_2_of_5", "list_two_pages",
		"scroll_feed", "campaign_list_loaded", "export_orders", "/api/v2/timeline", "/in/ann", "/addons", "/settlements",
	} {
		if sensitiveName(name, nil) {
			t.Errorf("%s is sensitive", name)
		}
	}
}

func TestAHeaderNamesAnotherMethod(t *testing.T) {
	for name, want := range map[string]bool{"X-HTTP-Method-Override": true, "x-http-method": true, "X-METHOD-OVERRIDE": true, "Content-Type": false, "X-Requested-With": false} {
		if got := IsOverridden(map[string]string{"Accept": "a", name: "DELETE"}); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
}
