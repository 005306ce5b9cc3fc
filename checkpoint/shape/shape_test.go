package shape

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	asForm = map[string]string{"content-type": "application/x-www-form-urlencoded; charset=UTF-8"}
	asJSON = map[string]string{"Content-Type": "application/json"}
	parts  = map[string]string{"Content-Type": "multipart/form-data; boundary=XX"}
)

func typed(media string) map[string]string { return map[string]string{"Content-Type": media} }

// part is a part of a multipart body.
func part(disposition, content string) string {
	return "--XX\r\nContent-Disposition: form-data; " + disposition + "\r\n\r\n" + content + "\r\n"
}

func post(url, body string, headers map[string]string) Request {
	return Request{Method: "POST", URL: "https://shop.example" + url, Headers: headers, Body: body, Whole: true}
}

func said(body string) Request {
	return Request{Method: Websocket, URL: "wss://shop.example/live?token=s3cret", Body: body, Whole: true}
}

// TestShapesOfRealRequests has requests as programs of many kinds send them. What a row tells apart
// or makes equal is its why.
func TestShapesOfRealRequests(t *testing.T) {
	for _, tt := range []struct {
		why  string
		r    Request
		want string
	}{
		// REST.
		{"numbers in a path are identifiers", Request{Method: "DELETE", URL: "https://Shop.example:8443/api/v2/orders/4711/items/3", Whole: true}, "DELETE https://shop.example:8443/api/v2/orders/{}/items/{}"},
		{"so are UUIDs, hashes, and what is mixed of letters and digits", Request{Method: "PUT", URL: "https://shop.example/a/3f2504e0-4f89-11d3-9a0c-0305e82c3301/507f1f77bcf86cd799439011/V1StGXR8Z5jdHi6B/cus_9s6XKzkNRiZ8i3", Whole: true}, "PUT https://shop.example/a/{}/{}/{}/cus_{}"},
		{"a star is no star of a pattern", Request{Method: "POST", URL: "https://shop.example/**/a*;b*/*.json", Whole: true}, "POST https://shop.example/%2A%2A/a%2A;{}/%2A.json"},
		{"words are not, with or without a version", Request{Method: "PATCH", URL: "https://shop.example/api/v1/oauth2/two-factor/settings.json", Whole: true}, "PATCH https://shop.example/api/v1/oauth2/two-factor/settings.json"},
		{"a file's name keeps its ending", Request{Method: "PUT", URL: "https://shop.example/files/20261126.pdf", Whole: true}, "PUT https://shop.example/files/{}.pdf"},
		{"titles and addresses of people are values", Request{Method: "PUT", URL: "https://shop.example/u/ann@shop.example/lists/Winter%20coats", Whole: true}, "PUT https://shop.example/u/{}/lists/{}"},
		{"parameters of a segment keep their names", Request{Method: "POST", URL: "https://shop.example/item;jsessionid=AB12;stats", Whole: true}, "POST https://shop.example/item;jsessionid;stats"},
		{"of a query the names", Request{Method: "GET", URL: "https://shop.example/like?post=12&_wpnonce=ab12cd&undo", Whole: true}, "GET https://shop.example/like?_wpnonce&post&undo"},
		{"without values, a route in a parameter is not told apart: a site file shows it", post("/index.php?route=/sql&ajax_request=true", "", nil), "POST https://shop.example/index.php?ajax_request&route"},
		{"the same with WordPress without rewritten addresses", post("/?rest_route=/wp/v2/posts/12", "", nil), "POST https://shop.example/?rest_route"},
		{"names in JSON, also inside, without values", post("/api/cart", `{"sku":"A-1","qty":2,"gift":{"to":"Ann","note":""},"tags":["a"],"lines":[{"id":1},{"id":2,"x":3}]}`, asJSON), "POST https://shop.example/api/cart json(gift.note,gift.to,lines[].id,lines[].x,qty,sku,tags)"},
		{"identifiers as names are values", post("/api/cart", `{"items":{"4711":{"qty":1},"4712":{"qty":2}}}`, asJSON), "POST https://shop.example/api/cart json(items.{}.qty)"},
		{"a name that occurs twice is told apart", post("/api/cart", `{"qty":1,"qty":2}`, asJSON), "POST https://shop.example/api/cart json(qty*)"},
		{"JSON in a body that is said to be text", post("/beacon", `{"event":"x"}`, typed("text/plain;charset=UTF-8")), "POST https://shop.example/beacon json(event)"},
		{"a patch in JSON", post("/api/cart", `[{"op":"replace","path":"/qty","value":3}]`, typed("application/json-patch+json")), "POST https://shop.example/api/cart json([].op,[].path,[].value)"},
		{"what claims to be JSON and is not", post("/api", `{"a":`, asJSON), "POST https://shop.example/api json"},
		{"a body that the browser does not show", Request{Method: "POST", URL: "https://shop.example/photos", Headers: typed("image/jpeg")}, "POST https://shop.example/photos binary(...)"},
		// GraphQL.
		{"a query by its name and text", post("/graphql", `{"operationName":"Feed","variables":{"first":20},"query":"query Feed($first:Int){feed(first:$first){id title}}"}`, asJSON), "POST https://shop.example/graphql json(operationName,query,variables.first) query operation=Feed text=*"},
		{"the same text set otherwise, with a comment, is the same", post("/graphql", "{\"operationName\":\"Feed\",\"variables\":{\"first\":5},\"query\":\"# the feed\\nquery Feed( $first : Int ) {\\n  feed( first: $first ) { id, title }\\n}\"}", asJSON), "POST https://shop.example/graphql json(operationName,query,variables.first) query operation=Feed text=*"},
		{"a mutation", post("/graphql", `{"query":"mutation AddToCart($sku:ID!){addToCart(sku:$sku){count}}","variables":{"sku":"A-1"}}`, asJSON), "POST https://shop.example/graphql json(query,variables.sku) mutation operation=AddToCart text=*"},
		{"values in the text are none of the shape", post("/graphql", `{"query":"mutation { like(id: 4711, note: \"ann\") { ok } }"}`, asJSON), "POST https://shop.example/graphql json(query) mutation text=*"},
		{"the name of several operations is not known", post("/graphql", `{"query":"query A{a} mutation B{b}"}`, asJSON), "POST https://shop.example/graphql json(query) mutation+query text=*"},
		{"a query without the word", post("/graphql", `{"query":"{ me { id } }"}`, asJSON), "POST https://shop.example/graphql json(query) query text=*"},
		{"a stored operation by its name and hash", post("/graphql", `{"operationName":"AddToCart","variables":{},"extensions":{"persistedQuery":{"version":1,"sha256Hash":"ECF4EDB46DB40B5132295C0291D62FB65D6759A9EEDFA4D5D612DD5EC54A6B38"}}}`, asJSON), "POST https://shop.example/graphql json(extensions.persistedQuery.sha256Hash,extensions.persistedQuery.version,operationName,variables) operation=AddToCart stored=ecf4edb46db4"},
		{"a list of operations, in any order", post("/graphql", `[{"operationName":"B","query":"query B{b}"},{"operationName":"A","query":"mutation A{a}"}]`, asJSON), "POST https://shop.example/graphql json([].operationName,[].query) mutation operation=A text=*; query operation=B text=*"},
		{"an operation in the query of a GET", Request{Method: "GET", URL: "https://shop.example/graphql?operationName=Feed&variables=%7B%7D&extensions=%7B%22persistedQuery%22%3A%7B%22sha256Hash%22%3A%22ecf4edb46db40b51%22%7D%7D", Whole: true}, "GET https://shop.example/graphql?extensions&operationName&variables operation=Feed stored=ecf4edb46db4"},
		{"a search is no operation", Request{Method: "GET", URL: "https://shop.example/search?query=query", Whole: true}, "GET https://shop.example/search?query"},
		// JSON-RPC, gRPC-web, Server Actions.
		{"JSON-RPC by its method", post("/rpc", `{"jsonrpc":"2.0","id":7,"method":"wallet.transfer","params":{"to":"ann","amount":5}}`, asJSON), "POST https://shop.example/rpc json(id,jsonrpc,method,params.amount,params.to) method=wallet.transfer"},
		{"a list of calls by all methods", post("/rpc", `[{"jsonrpc":"2.0","method":"b"},{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","method":"a"}]`, asJSON), "POST https://shop.example/rpc json([].jsonrpc,[].method) method=a; method=b"},
		{"a member called method alone is a value", post("/pay", `{"method":"card-of-ann"}`, asJSON), "POST https://shop.example/pay json(method)"},
		{"gRPC-web by its path", Request{Method: "POST", URL: "https://shop.example/shop.v1.Cart/AddItem", Headers: typed("application/grpc-web+proto")}, "POST https://shop.example/shop.v1.Cart/AddItem grpc-web(...)"},
		{"a Server Action by its id", post("/cart", `["$K1"]`, map[string]string{"Next-Action": "7f1c3a9b2d4e5f60718293a4b5c6d7e8f9012345", "Content-Type": "text/plain;charset=UTF-8"}), "POST https://shop.example/cart json action=7f1c3a9b2d4e"},
		// Forms.
		{"a form by its names", post("/wp-admin/admin-ajax.php", "action=like&post_id=12&nonce=ab12", asForm), "POST https://shop.example/wp-admin/admin-ajax.php form(action,nonce,post_id)"},
		{"names that repeat", post("/bulk", "ids[]=1&ids[]=2&do=delete", asForm), "POST https://shop.example/bulk form(do,ids[]*)"},
		{"identifiers in names", post("/cart", "items[4711][qty]=1&items[4712][qty]=2&4f2a9c01b7d3=1", asForm), "POST https://shop.example/cart form(items[{}][qty],{})"},
		{"htmx sends forms, too", post("/todo/17/toggle", "done=on", map[string]string{"HX-Request": "true", "Content-Type": "application/x-www-form-urlencoded"}), "POST https://shop.example/todo/{}/toggle form(done)"},
		{"what is no form although it is said to be one", post("/x", `{"a":"ann"}`, asForm), "POST https://shop.example/x form({})"},
		{"parts, files with @", post("/upload", part(`name="title"`, "Ann")+part(`name="photo"; filename="ann.jpg"`, "...")+"--XX--\r\n", parts), "POST https://shop.example/upload multipart(title,photo@)"},
		{"tus: a file in pieces", Request{Method: "PATCH", URL: "https://shop.example/files/24e533e02ec3bc40c387f1a0e460e216", Headers: typed("application/offset+octet-stream")}, "PATCH https://shop.example/files/{} upload(...)"},
		// Websockets.
		{"a message by its type", said(`{"type":"ping","id":"9f1c"}`), "WEBSOCKET wss://shop.example/live?token json type=ping"},
		{"by event, op and method", said(`{"op":2,"event":"message.send","method":"x/y"}`), "WEBSOCKET wss://shop.example/live?token json event=message.send op=2 method=x/y"},
		{"by its names if it says nothing", said(`{"text":"hello Ann"}`), "WEBSOCKET wss://shop.example/live?token json(text)"},
		{"GraphQL in a message", said(`{"id":"1","type":"subscribe","payload":{"query":"mutation Send{send}"}}`), "WEBSOCKET wss://shop.example/live?token json type=subscribe mutation operation=Send text=*"},
		{"LiveView: the event within the event", said(`["4","5","lv:phx-F1a2","event",{"type":"click","event":"delete","value":{"id":"12"}}]`), "WEBSOCKET wss://shop.example/live?token json event=event type=click event=delete"},
		{"a type of two words", said(`{"type":"add item"}`), "WEBSOCKET wss://shop.example/live?token json type=add_item"},
		{"a heartbeat of a channel", said(`[null,"6","phoenix","heartbeat",{}]`), "WEBSOCKET wss://shop.example/live?token json event=heartbeat"},
		{"socket.io: an event with an acknowledgement, in a namespace", said(`42/admin,17["order.delete",{"id":5}]`), "WEBSOCKET wss://shop.example/live?token socket.io type=event event=order.delete"},
		{"its ping", said("2"), "WEBSOCKET wss://shop.example/live?token socket.io type=ping"},
		{"a number is none of its messages", said("2026"), "WEBSOCKET wss://shop.example/live?token text"},
		{"text", said("say hello"), "WEBSOCKET wss://shop.example/live?token text"},
		{"bytes", Request{Method: Websocket, URL: "wss://shop.example/live"}, "WEBSOCKET wss://shop.example/live binary"},
		// Values that may be shown, because the site's owner says so.
		{"in the query", showing(post("/index.php?route=/sql&token=t", "a=1", asForm)), "POST https://shop.example/index.php?route=/sql&token form(a)"},
		{"in a form, unless it repeats", showing(post("/ajax", "action=heart beat&op=1&op=2", asForm)), "POST https://shop.example/ajax form(action=heart_beat,op*)"},
		{"in JSON", showing(post("/ajax", `{"action":"save","a":{"action":"x"}}`, asJSON)), "POST https://shop.example/ajax json(a.action,action=save)"},
		{"no text of a person's", showing(post("/ajax", "action=Dear Ann, how are you?", asForm)), "POST https://shop.example/ajax form(action={})"},
		// What is no request of anybody's.
		{"a method that is none", Request{Method: "GET\r\nX", URL: "https://shop.example/", Whole: true}, "{} https://shop.example/"},
		{"an address that cannot be read", Request{Method: "GET", URL: "https://shop.example:x/%zz", Whole: true}, "GET {}"},
	} {
		t.Run(tt.why, func(t *testing.T) {
			if got := hash.ReplaceAllString(Of(tt.r), "text=*"); got != tt.want {
				t.Errorf("is  %s\nnot %s", got, tt.want)
			}
		})
	}
}

// showing is the request on a site whose owner lets some values be shown.
func showing(r Request) Request {
	r.Show = []string{"route", "action", "op"}
	return r
}

var hash = regexp.MustCompile(`text=[0-9a-f]{12}`)

// TestTextsOfOperations: what differs in comments, spaces and values is one operation, and nothing
// else is.
func TestTextsOfOperations(t *testing.T) {
	of := func(text string) string {
		quoted, _ := json.Marshal(text)
		return Of(post("/graphql", `{"query":`+string(quoted)+`}`, asJSON))
	}
	first := of("mutation { like(id: 4711, note: \"ann\") { ok } }")
	for _, equal := range []string{"mutation{like(id:-1.5e3 note:\"\"\"a \\\"\"\" b\"\"\"){ok}}", "\ufeff# a { comment\r\nmutation{like(id:4,,note:\"\\\"}\"){ok}}"} {
		if got := of(equal); got != first {
			t.Errorf("%q\nis  %s\nnot %s", equal, got, first)
		}
	}
	for _, other := range []string{"mutation { unlike(id: 4711, note: \"ann\") { ok } }", "{ like(id: 4711, note: \"ann\") { ok } }", "mutation { like(id: $id, note: \"ann\") { ok } }", "mutation { like(id: 4711) { ok } }"} {
		if of(other) == first {
			t.Errorf("%q is %s", other, first)
		}
	}
}

// sameButFor are requests that do the same thing with different values.
func sameButFor(v string) map[string]Request {
	quoted, _ := json.Marshal(v)
	asText, _ := json.Marshal("mutation{like(a:" + strconv.Quote("x"+strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return -1
		}
		return c
	}, v)) + ")}")
	return map[string]Request{
		"query":     {Method: "GET", URL: "https://s.example/p?name=" + url.QueryEscape(v), Whole: true},
		"form":      post("/p", "name="+url.QueryEscape(v)+"&b=1", asForm),
		"json":      post("/p", `{"name":`+string(quoted)+`,"inner":{"a":[`+string(quoted)+`]}}`, asJSON),
		"multipart": post("/p", part(`name="name"`, strings.ReplaceAll(v, "--XX", ""))+"--XX--\r\n", parts),
		"graphql":   post("/p", `{"query":`+string(asText)+`,"variables":{"v":`+string(quoted)+`}}`, asJSON),
		"rpc":       post("/p", `{"jsonrpc":"2.0","method":"m","params":{"v":`+string(quoted)+`}}`, asJSON),
		"message":   said(`{"type":"send","text":` + string(quoted) + `}`),
		"socket.io": said(`42["send",` + string(quoted) + `]`),
		"channel":   said(`["1","2",` + string(quoted) + `,"send",{"v":` + string(quoted) + `}]`),
		"cookie":    {Method: "POST", URL: "https://s.example/p", Headers: map[string]string{"Cookie": v, "Authorization": v}, Whole: true},
	}
}

// FuzzValues: requests that do the same with different values have one shape.
func FuzzValues(f *testing.F) {
	f.Add("Ann", "4711")
	f.Add("", "a&b=c;d\x00\xff")
	f.Add("\n\r\n--", "\"}]")
	f.Fuzz(func(t *testing.T, a, b string) {
		other := sameButFor(b)
		for name, r := range sameButFor(a) {
			if one, two := Of(r), Of(other[name]); one != two {
				t.Errorf("%s: %q and %q", name, one, two)
			}
		}
	})
}

// FuzzIdentifiers: what differs in a number only has one shape.
func FuzzIdentifiers(f *testing.F) {
	f.Add(uint64(1), uint64(1<<60))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		of := func(n uint64) string {
			d := strconv.FormatUint(n, 10)
			return Of(post("/a/"+d+"/b-"+d+"/"+d+".json?x["+d+"]=1&"+d, `{"`+d+`":1}`, asJSON))
		}
		if of(a) != of(b) {
			t.Errorf("%s and %s", of(a), of(b))
		}
	})
}

// TestFormsOfManyNames: what is too much for a shape still tells requests apart, what a reader needs
// of it stays, and a line covers it as it covers a short one.
func TestFormsOfManyNames(t *testing.T) {
	form := func(names int, more string) Request {
		var all []string
		for i := range names {
			all = append(all, "option_"+strings.Repeat(string(rune('a'+i%26)), 1+i/26)+"=1")
		}
		return Request{Method: "POST", URL: "https://shop.example/export", Headers: asForm, Body: strings.Join(all, "&") + more, Whole: true, Show: []string{"what"}}
	}
	covered := func(pattern string, r Request) bool {
		t.Helper()
		p, err := ParsePattern(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return p.Covers(ReadShape(Of(r), r.URL))
	}
	of := Of(form(60, "&zeta*=1&what=all&zulu=1&zulu=2"))
	for _, want := range []string{"what=all", "zulu*", ",+"} {
		if !strings.Contains(of, want) {
			t.Errorf("%s has no %q", of, want)
		}
	}
	one, other := form(60, "&zebra=1"), form(60, "&zoo=1")
	if Of(one) == Of(other) {
		t.Errorf("two forms have one shape: %s", Of(one))
	}
	if !covered("POST /export", one) || !covered(Of(one), one) || covered(Of(other), one) {
		t.Errorf("of %s: by its path %t, by its shape %t, by that of another %t; want the first two", Of(one), covered("POST /export", one), covered(Of(one), one), covered(Of(other), one))
	}
	var doubled strings.Builder
	for i := range 60 {
		doubled.WriteString("&" + strings.Repeat(string(rune('a'+i%26)), 1+i/26) + "=1")
	}
	for name, r := range map[string]Request{
		"names that occur twice, more than are shown": form(1, doubled.String()+doubled.String()),
		"more names than are looked at": {Method: "POST", URL: "https://shop.example/export", Headers: parts, Whole: true,
			Body: strings.Repeat(part(`name="a"`, "1"), maxCollected+1) + "--XX--\r\n"},
	} {
		if covered("POST /export", r) {
			t.Errorf("%s: %s is covered by its path", name, Of(r))
		}
	}
}

// FuzzOf: a shape is bounded, printable, and the same each time.
func FuzzOf(f *testing.F) {
	f.Add("POST", "https://a.example/b?c=d", "application/json", `{"a":[1,{"b":"c"}]}`)
	f.Add("WEBSOCKET", "wss://a.example/", "", `42["a"]`)
	f.Add("POST", "", "multipart/form-data; boundary=XX", "--XX\r\n")
	f.Add("POST", "/"+strings.Repeat("a/", 600), "", `{"query":"query \"\"\"`)
	f.Fuzz(func(t *testing.T, method, address, media, body string) {
		for _, whole := range []bool{true, false} {
			r := Request{Method: method, URL: address, Headers: typed(media), Body: body, Whole: whole}
			s := Of(r)
			if len(s) > MaxLen || !utf8.ValidString(s) || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' }) || s != Of(r) {
				t.Errorf("%q", s)
			}
		}
	})
}

// FuzzPattern: a shape is a pattern, and covers itself unless something of it is not known.
func FuzzPattern(f *testing.F) {
	f.Add("POST", "/b?c=d", "application/json", `{"a":[1,{"b":"c"}]}`)
	f.Add("WEBSOCKET", "/", "", `42["a"]`)
	f.Add("POST", "/a%2F*/{}/**", "multipart/form-data; boundary=XX", "--XX\r\n")
	f.Fuzz(func(t *testing.T, method, path, media, body string) {
		r := Request{Method: method, URL: "https://shop.example" + path, Headers: typed(media), Body: body, Whole: true}
		s := Of(r)
		p, err := ParsePattern(s)
		if err != nil {
			return
		}
		if p.Covers(ReadShape(s, r.URL)) && !p.Touches(ReadShape(s, r.URL)) {
			t.Errorf("%q covers itself, and does not touch itself", s)
		}
		again, err := ParsePattern(p.String())
		if err != nil || again.String() != p.String() {
			t.Errorf("%q is read as %q: %v", p.String(), again.String(), err)
		}
	})
}

// TestPatternsOfPaths: what a star stands for, strictly and not.
func TestPatternsOfPaths(t *testing.T) {
	for _, tt := range []struct {
		pattern, path   string
		strictly, loose bool
	}{
		{"/a/*", "/a/b", true, true},
		{"/a/*", "/a/b/c", false, false},
		{"/a/*", "/a", false, false},
		{"/a/*", "/a/", false, false},
		{"/a/*", "/a/%2e%2e%2fb", false, true},
		{"/a/**", "/a/b/c", true, true},
		{"/a/**", "/a", true, true},
		{"/a/**", "/a/", true, true},
		{"/a/**", "/a//b", false, true},
		{"/a/**/z", "/a/b/z/c/z", true, true},
		{"/a/**/z", "/a/z/c", false, false},
		{"/**", "/", true, true},
		{"/a-*.json", "/a-1.json", true, true},
		{"/a-*.json", "/b-1.json", false, false},
		{"/A", "/a/", false, true},
		{"/caf%C3%A9", "/caf%c3%a9", true, true},
		{"/n/{}", "/n/4711", true, true},
		{"/n/{}", "/n/all", false, false},
		{"/n/4711", "/n/4711", true, true},
		{"/n/4711", "/n/4712", false, false},
		{"/a%2Ab", "/a*b", true, true},
		{"/a%2ab", "/a%2Ab", true, true},
		{"/a%2Ab", "/acb", false, false},
		{"/%2A%2A", "/**", true, true},
		{"/%2A%2A", "/orders/42/delete", false, false},
		{"/%2A%2A", "/orders", false, false},
		{"/%2A-*", "/*-b", true, true},
		{"/%2A-*", "/a-b", false, false},
		{"/A%2A*", "/a%2A/", false, true},
		{"/a*%", "/a%25", false, false},
	} {
		p, err := ParsePattern("POST " + tt.pattern)
		if err != nil {
			t.Fatal(err)
		}
		raw := "https://shop.example" + tt.path
		s := Of(Request{Method: "POST", URL: raw, Whole: true})
		if got := p.Covers(ReadShape(s, raw)); got != tt.strictly {
			t.Errorf("%s covers %s: %v", tt.pattern, tt.path, got)
		}
		if got := p.Touches(ReadShape(s, raw)); got != tt.loose {
			t.Errorf("%s touches %s: %v", tt.pattern, tt.path, got)
		}
	}
}
