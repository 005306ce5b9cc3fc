package site

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"leasehold/checkpoint/shape"
)

// shop is the file of the design.
const shop = `
name: shop
origins: ["https://shop.example", "https://*.shop.example"]
show: [route, action, operationName]
requests:
  - {shape: "POST /graphql operation=Feed", is: read}
  - {shape: "POST /index.php", where: {route: "/sql", sql_query: {matches: "^select[^;]*$"}}, is: read}
  - {shape: "POST /ajax", where: {action: heartbeat, autosave: absent}, is: read}
  - {shape: "GET /favourite/*/toggle", is: write}
  - {shape: "POST /cart", is: write, repeatable: true}
  - {shape: "WEBSOCKET /live type=ping", is: read}
  - {shape: "POST /rpc method=wallet.get*", is: read}
  - {shape: "POST /shop.v1.Cart/List", is: read}
  - {shape: "POST /actions action=7f1c3a9b2d4e", is: read}
  - {shape: "POST /search form(q)", is: read}
  - {shape: "POST /notes/{}/preview", is: read}
  - {shape: "PATCH /files/**", is: read}
  - {shape: "WEBSOCKET /socket event=event type=sort", is: read}
  - {shape: "POST /upload", where: {do: check}, is: read}
  - {shape: "POST /v1/items", where: {"filter.kind": open}, is: read}
  - {shape: "POST /calc", where: {op: {matches: "sum|avg"}}, is: read}
  - {shape: "POST https://api.shop.example/query", is: read}
  - {shape: "GET /export", where: {_wpnonce: {matches: ".*"}, action: csv}, is: read}
sensitive: ["/checkout/**", "/admin?page=options"]
identity: {get: "/api/me", take: ["$.email"]}
probes:
  - {name: orders, get: "/api/orders?limit=1", take: ["$.total", "$.items[0].updated"], show: "$.items[0].title"}
  - {name: cart,   get: "/api/cart", take: ["$.count"], covers: ["POST /cart", "POST /cart/*"]}
  - {name: inbox,  get: "/inbox", take_text: "#unread", match: "[0-9]+", alarm: false}
headers: {X-Requested-With: leasehold}
rehearse: [{open: "/", take_text: "#workspace"}]
`

var (
	asJSON  = map[string]string{"Content-Type": "application/json"}
	asForm  = map[string]string{"Content-Type": "application/x-www-form-urlencoded"}
	asParts = map[string]string{"Content-Type": "multipart/form-data; boundary=XX"}
)

func post(url, body string, headers map[string]string) shape.Request {
	return shape.Request{Method: "POST", URL: "https://shop.example" + url, Body: body, Headers: headers, Whole: true}
}

func said(url, body string) shape.Request {
	return shape.Request{Method: shape.Websocket, URL: "wss://shop.example" + url, Body: body, Whole: true}
}

func part(name, value string) string {
	return "--XX\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
}

func book(t testing.TB, texts ...string) *Book {
	t.Helper()
	var files []File
	for _, text := range texts {
		f, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	b, wrong := NewBook(files)
	if wrong != nil {
		t.Fatal(wrong)
	}
	return b
}

// TestJudge: what a line says of real requests, and what it does not say of those beside them.
func TestJudge(t *testing.T) {
	t.Parallel()
	b := book(t, shop)
	const nothing, repeat = "", "write, repeatable"
	for _, tt := range []struct {
		why  string
		r    shape.Request
		want string
	}{
		{"GraphQL by its name", post("/graphql", `{"operationName":"Feed","query":"query Feed{feed{id}}"}`, asJSON), Read},
		{"a stored operation by its name", post("/graphql", `{"operationName":"Feed","extensions":{"persistedQuery":{"sha256Hash":"ecf4edb46db40b5132295c0291d62fb6"}}}`, asJSON), Read},
		{"another operation", post("/graphql", `{"operationName":"Like","query":"mutation Like{like}"}`, asJSON), nothing},
		{"a list with another operation in it", post("/graphql", `[{"operationName":"Feed","query":"query Feed{a}"},{"operationName":"Like","query":"mutation Like{a}"}]`, asJSON), nothing},
		{"a list of the same", post("/graphql", `[{"operationName":"Feed","query":"query Feed{a}"},{"operationName":"Feed","query":"query Feed{b}"}]`, asJSON), Read},
		{"a name that occurs twice", post("/graphql", `{"operationName":"Feed","operationName":"Like","extensions":{}}`, asJSON), nothing},
		{"a body that is cut", shape.Request{Method: "POST", URL: "https://shop.example/graphql", Headers: asJSON, Body: `{"operationName":"Feed"`}, nothing},
		{"a body of which nothing is known", shape.Request{Method: "POST", URL: "https://shop.example/shop.v1.Cart/List"}, nothing},
		{"another method in a header", post("/graphql", `{"operationName":"Feed","query":"query Feed{a}"}`, map[string]string{"X-HTTP-Method-Override": "DELETE"}), nothing},
		{"another site", shape.Request{Method: "POST", URL: "https://shop.example.evil/graphql", Headers: asJSON, Body: `{"operationName":"Feed","query":"query Feed{a}"}`, Whole: true}, nothing},
		{"a host below the site", shape.Request{Method: "POST", URL: "https://eu.api.shop.example/graphql", Headers: asJSON, Body: `{"operationName":"Feed","query":"query Feed{a}"}`, Whole: true}, Read},
		{"plain http is another origin", shape.Request{Method: "POST", URL: "http://shop.example/graphql", Headers: asJSON, Body: `{"operationName":"Feed","query":"query Feed{a}"}`, Whole: true}, nothing},

		{"a SELECT", post("/index.php?route=/sql", "sql_query=select+1&pos=0", asForm), Read},
		{"an UPDATE", post("/index.php?route=/sql", "sql_query=update+t+set+a%3D1", asForm), nothing},
		{"two statements", post("/index.php?route=/sql", "sql_query=select+1%3Bdrop+table+t", asForm), nothing},
		{"a line break is not any character", post("/index.php?route=/sql", "sql_query=select+1%0A%3Bdelete", asForm), nothing},
		{"another route", post("/index.php?route=/table", "sql_query=select+1", asForm), nothing},
		{"a route in the body as well", post("/index.php?route=/sql", "sql_query=select+1&route=/drop", asForm), nothing},
		{"a name that repeats beside", post("/index.php?route=/sql", "sql_query=select+1&ids[]=1&ids[]=2", asForm), Read},
		{"a value that PHP replaces", post("/index.php?route=/sql", "sql_query=select+1&sql_query[x]=update", asForm), nothing},
		{"a name that PHP takes for it", post("/index.php?route=/sql", "sql_query=select+1&sql.query=update", asForm), nothing},
		{"what cannot be decoded", post("/index.php?route=/sql", "sql_query=select+1&a=%zz", asForm), nothing},

		{"a heartbeat", post("/ajax", "action=heartbeat&interval=15", asForm), Read},
		{"one that saves", post("/ajax", "action=heartbeat&autosave=1", asForm), nothing},
		{"one that saves, in brackets", post("/ajax", "action=heartbeat&autosave[post]=1", asForm), nothing},
		{"in parts", post("/ajax", part("action", "heartbeat")+"--XX--\r\n", asParts), Read},
		{"parts that do not end", post("/ajax", part("action", "heartbeat"), asParts), nothing},
		{"JSON that is said to be a form", post("/ajax", `{"action":"heartbeat","a":"&action=delete"}`, asForm), nothing},
		{"a form's own method", post("/ajax", "action=heartbeat&_method=DELETE", asForm), nothing},
		{"a mutation in a form", post("/search", "q=mutation+%7Blike%7D", asForm), nothing},

		{"a GET that writes", shape.Request{Method: "GET", URL: "https://shop.example/favourite/17/toggle", Whole: true}, Write},
		{"however it is written", shape.Request{Method: "GET", URL: "https://shop.example/Favourite/1%2F7/toggle/?x=1", Whole: true}, Write},
		{"beside it", shape.Request{Method: "GET", URL: "https://shop.example/favourite/17", Whole: true}, nothing},
		{"a write that may be repeated", post("/cart", "qty=1", asForm), repeat},
		{"a write of which not all is known", shape.Request{Method: "POST", URL: "https://shop.example/cart", Headers: asForm}, Write},

		{"a message by its type", said("/live", `{"type":"ping"}`), Read},
		{"another type", said("/live", `{"type":"send"}`), nothing},
		{"a type that begins like it", said("/live", `{"type":"ping all"}`), nothing},
		{"LiveView: the event within the event", said("/socket", `["4","5","lv:phx","event",{"type":"sort","value":{}}]`), Read},
		{"JSON-RPC by a part of its method", post("/rpc", `{"jsonrpc":"2.0","method":"wallet.getBalance","id":1}`, asJSON), Read},
		{"another method", post("/rpc", `{"jsonrpc":"2.0","method":"wallet.send","id":1}`, asJSON), nothing},
		{"a list with another method", post("/rpc", `[{"jsonrpc":"2.0","method":"wallet.getA"},{"jsonrpc":"2.0","method":"wallet.send"}]`, asJSON), nothing},
		{"gRPC-web by its path", shape.Request{Method: "POST", URL: "https://shop.example/shop.v1.Cart/List", Headers: map[string]string{"Content-Type": "application/grpc-web+proto"}}, Read},
		{"another of its service", shape.Request{Method: "POST", URL: "https://shop.example/shop.v1.Cart/Add", Headers: map[string]string{"Content-Type": "application/grpc-web+proto"}}, nothing},
		{"a Server Action by its id", post("/actions", "[]", map[string]string{"Next-Action": "7f1c3a9b2d4e5f60718293a4b5c6d7e8f9012345", "Content-Type": "text/plain"}), Read},
		{"another action", post("/actions", "[]", map[string]string{"Next-Action": "8f1c3a9b2d4e5f60718293a4b5c6d7e8f9012345", "Content-Type": "text/plain"}), nothing},
		{"htmx: a form by its names", post("/search", "q=lamp", map[string]string{"HX-Request": "true", "Content-Type": "application/x-www-form-urlencoded"}), Read},
		{"with another name", post("/search", "q=lamp&save=1", asForm), nothing},
		{"an identifier in the path", post("/notes/4711/preview", "text=a", asForm), Read},
		{"a word in its place", post("/notes/all/preview", "text=a", asForm), nothing},
		{"tus: any path below", shape.Request{Method: "PATCH", URL: "https://shop.example/files/a/24e533e02ec3bc40c387f1a0e460e216", Headers: map[string]string{"Content-Type": "application/offset+octet-stream"}}, Read},
		{"a path that a server may read in another way", shape.Request{Method: "PATCH", URL: "https://shop.example/files/..%2Fadmin", Headers: map[string]string{"Content-Type": "application/offset+octet-stream"}}, nothing},
		{"a file in parts", post("/upload", part("do", "check")+"--XX--\r\n", asParts), Read},
		{"JSON by its path", post("/v1/items", `{"filter":{"kind":"open"},"page":2}`, asJSON), Read},
		{"and by a name that looks like it", post("/v1/items", `{"filter":{"kind":"open"},"filter.kind":"all"}`, asJSON), nothing},
		{"a value that an expression matches", post("/calc", "op=avg", asForm), Read},
		{"a value of which it matches a part", post("/calc", "op=sum+and+delete", asForm), nothing},
		{"a whole address", shape.Request{Method: "POST", URL: "https://api.shop.example/query", Body: `{"q":"a"}`, Headers: asJSON, Whole: true}, Read},
		{"it is not of other origins", post("/query", `{"q":"a"}`, asJSON), nothing},
		{"a mutation where only the address is known", shape.Request{Method: "POST", URL: "https://api.shop.example/query", Body: `{"query":"mutation{a}"}`, Headers: asJSON, Whole: true}, nothing},
		{"a body named twice", shape.Request{Method: "POST", URL: "https://api.shop.example/query", Body: `{"query":"{a}","query":"{b}"}`, Headers: asJSON, Whole: true}, nothing},
		{"escaped without need", shape.Request{Method: "POST", URL: "https://api.shop.example/query", Body: `{"batch":[{"q":"\u006dutation{a}"}]}`, Headers: asJSON, Whole: true}, nothing},
		{"a nonce", shape.Request{Method: "GET", URL: "https://shop.example/export?action=csv&_wpnonce=ab12", Whole: true}, Read},
		{"another action with a nonce", shape.Request{Method: "GET", URL: "https://shop.example/export?action=delete&_wpnonce=ab12", Whole: true}, nothing},
	} {
		t.Run(tt.why, func(t *testing.T) {
			v := b.Judge(tt.r, shape.Of(tt.r))
			got := v.Is
			if v.Repeatable {
				got += ", repeatable"
			}
			if got != tt.want || (v.Line == "") != (v.Is == "") || v.Line != "" && !holds(b, tt.r, v.Line) {
				t.Errorf("%s is %q by %q, want %q", shape.Of(tt.r), got, v.Line, tt.want)
			}
		})
	}
}

// holds tells whether a line that spoke for a request still does.
func holds(b *Book, r shape.Request, line string) bool {
	still, _ := b.Now(Noted{Method: r.Method, Shape: shape.Of(r), URL: r.URL, Line: line}, time.Time{})
	return still
}

// TestAWholeShapeIsALine: what a review shows of a request can be said of it, and is said of no
// other.
func TestAWholeShapeIsALine(t *testing.T) {
	t.Parallel()
	requests := []shape.Request{
		post("/graphql", `{"query":"query A{a}"}`, asJSON), post("/graphql", `{"query":"query A{b}"}`, asJSON),
		post("/cart/17?ref=1", "color=red&size=2", asForm), post("/cart/17?ref=1", "color=red", asForm), post("/cart/17", "color=red", asForm),
		said("/live", `{"type":"ping"}`), said("/live", `{"type":"pong"}`), said("/live", `{"text":"a"}`),
		post("/rpc", `[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","method":"b"}]`, asJSON), post("/rpc", `{"jsonrpc":"2.0","method":"c"}`, asJSON),
	}
	for i, r := range requests {
		b, wrong := NewBook([]File{{Name: "s", Origins: []string{"https://shop.example"}, Requests: []Line{{Shape: shape.Of(r), Is: Read}}}})
		if wrong != nil {
			t.Fatal(wrong)
		}
		for j, other := range requests {
			if got := b.Judge(other, shape.Of(other)).Is == Read; got != (i == j) {
				t.Errorf("%s of %s: %v", shape.Of(r), shape.Of(other), got)
			}
		}
	}
}

// TestAShapeThatDoesNotHaveAllIsNoLine of a read: what it leaves out may differ each time.
func TestAShapeThatDoesNotHaveAllIsNoLine(t *testing.T) {
	t.Parallel()
	long := "/" + strings.Repeat("about/", 50)
	for why, pair := range map[string][2]shape.Request{
		"a form that is cut":   {{Method: "POST", URL: "https://shop.example/ajax", Headers: asForm, Body: "a=1"}, {Method: "POST", URL: "https://shop.example/ajax", Headers: asForm, Body: "a=2&"}},
		"JSON that is cut":     {{Method: "POST", URL: "https://shop.example/ajax", Headers: asJSON, Body: `{"a`}, {Method: "POST", URL: "https://shop.example/ajax", Headers: asJSON, Body: `{"b`}},
		"a body that is cut":   {{Method: "POST", URL: "https://shop.example/ajax"}, {Method: "POST", URL: "https://shop.example/ajax"}},
		"a path that is long":  {post(long+"list", "", nil), post(long+"delete", "", nil)},
		"one with a long name": {post(long+"a/list", "a=1", asForm), post(long+"b/delete", "a=1", asForm)},
	} {
		read, other := pair[0], pair[1]
		f := File{Name: "s", Origins: []string{"https://shop.example"}, Requests: []Line{{Shape: shape.Of(read), Is: Read}}}
		b, wrong := NewBook([]File{f})
		if v := b.Judge(other, shape.Of(other)); v.Is != "" || wrong != nil {
			t.Errorf("%s: %s is %+v by what is said of %s, %v", why, shape.Of(other), v, shape.Of(read), wrong)
		}
		f.Requests[0].Is = Write
		if b, _ = NewBook([]File{f}); b.Judge(read, shape.Of(read)).Is != Write {
			t.Errorf("%s: %s is no write, although that is said of it", why, shape.Of(read))
		}
	}
}

// TestTheFirstLineDecides, and of several files the one with the nearest origin.
func TestTheFirstLineDecides(t *testing.T) {
	t.Parallel()
	b := book(t, `{"name":"a","origins":["https://*.shop.example"],"requests":[{"shape":"POST /x","is":"write"}]}`,
		`{"name":"b","origins":["https://www.shop.example"],"requests":[{"shape":"POST /x","where":{"a":1},"is":"read"},{"shape":"POST /**","is":"write"}]}`)
	for body, want := range map[string]string{
		"a=1": "b: POST /x where a=\"1\" is read",
		"a=2": "b: POST /** is write",
	} {
		r := shape.Request{Method: "POST", URL: "https://www.shop.example/x", Headers: asForm, Body: body, Whole: true}
		if v := b.Judge(r, shape.Of(r)); v.Line != want {
			t.Errorf("%s: %+v, want %s", body, v, want)
		}
	}
	x := shape.Request{Method: "POST", URL: "https://www.shop.example/x", Whole: true}
	if holds(b, x, "b: POST /x is read") || b.JudgesGETs() || holds(nil, x, "x") {
		t.Error("a line that is not there holds")
	}
}

// TestAMutationIsNoRead of a line that does not say so, wherever it stands; what may be repeated may be one.
func TestAMutationIsNoRead(t *testing.T) {
	t.Parallel()
	const mark = "mutation Mark{mark}"
	b := book(t, `
name: shop
origins: ["https://shop.example"]
requests:
  - {shape: "POST /graphql operation=Feed", is: read}
  - {shape: "POST /graphql mutation operation=Seen", is: read}
  - {shape: "POST /graphql operation=Like", is: write, repeatable: true}
  - {shape: "`+strings.Replace(shape.Of(post("/marks", `{"query":"`+mark+`"}`, asJSON)), "https://shop.example", "", 1)+`", is: read}
  - {shape: "POST /all *", is: read}
  - {shape: "POST /batch", is: read}
  - {shape: "POST /rpc method=list", is: read}
  - {shape: "WEBSOCKET /gql type=subscribe", is: read}
  - {shape: "WEBSOCKET /gql operation=Feed", is: read}
  - {shape: "WEBSOCKET /live type=ping", is: read}
  - {shape: "WEBSOCKET /socket.io/ event=list", is: read}
  - {shape: "WEBSOCKET /absinthe event=doc", is: read}
  - {shape: "WEBSOCKET /view event=page", is: read}
  - {shape: "WEBSOCKET /view event=event type=click", is: read}
`)
	asGraphQL := map[string]string{"Content-Type": "application/graphql"}
	const nothing, repeat = "", "write, repeatable"
	for _, tt := range []struct {
		why  string
		r    shape.Request
		want string
	}{
		{"a mutation of that name", post("/graphql", `{"query":"mutation Feed{buy}"}`, asJSON), nothing},
		{"a mutation that says it is another", post("/graphql", `{"operationName":"Feed","query":"mutation Buy{buy}"}`, asJSON), nothing},
		{"one beside a query", post("/graphql", `{"operationName":"Feed","query":"query Feed{a} mutation Buy{b}"}`, asJSON), nothing},
		{"a text that is there twice", post("/graphql", `{"operationName":"Feed","query":"query Feed{a}","query":"mutation Buy{b}"}`, asJSON), nothing},
		{"a stored operation that is there twice", post("/graphql", `{"operationName":"Feed","extensions":{},"extensions":{}}`, asJSON), nothing},
		{"a list with one that has no name", post("/graphql", `[{"operationName":"Feed","query":"query Feed{a}"},{"id":"17"}]`, asJSON), nothing},
		{"a name in the address, and a mutation as text", post("/graphql?operationName=Feed", `mutation Feed{buy}`, asGraphQL), nothing},
		{"and in a form", post("/graphql?operationName=Feed", `query=mutation+Feed%7Bbuy%7D`, asForm), nothing},
		{"a query that has the word in a value", post("/graphql", `{"query":"query Feed($q:String){feed(q:$q){a}}","variables":{"q":"mutation"}}`, asJSON), Read},
		{"a query of the schema", post("/graphql", `{"query":"query Feed{__schema{mutationType{name}}}"}`, asJSON), Read},
		{"a mutation that the line names", post("/graphql", `{"query":"mutation Seen{seen}"}`, asJSON), Read},
		{"another one", post("/graphql", `{"query":"mutation Unseen{seen}"}`, asJSON), nothing},
		{"the text of a mutation that the line has", post("/marks", `{"query":"`+mark+`"}`, asJSON), Read},
		{"a star names no mutation", post("/all", `{"query":"mutation A{a}"}`, asJSON), nothing},
		{"and any query", post("/all", `{"query":"query A{a}"}`, asJSON), Read},
		{"a mutation that may be repeated", post("/graphql", `{"query":"mutation Like{like}"}`, asJSON), repeat},
		{"the word after a line break, in a list of another form", post("/batch", `{"batch":[{"q":"\nmutation{a}"}]}`, asJSON), nothing},
		{"and in a form that cannot be decoded", post("/batch", "q=%0Amutation%7Ba%7D&b=%zz", asForm), nothing},
		{"GraphQL in a call of another protocol", post("/rpc", `{"jsonrpc":"2.0","method":"list","params":{"q":"mutation{a}"}}`, asJSON), nothing},
		{"a subscription", said("/gql", `{"type":"subscribe","payload":{"query":"subscription A{a}"}}`), Read},
		{"a query in its envelope", said("/gql", `{"type":"start","payload":{"query":"query Feed{a}"}}`), Read},
		{"a mutation in its envelope", said("/gql", `{"type":"subscribe","payload":{"query":"mutation Buy{a}"}}`), nothing},
		{"one that is there twice", said("/gql", `{"type":"subscribe","payload":{"query":"{a}","query":"mutation Buy{a}"}}`), nothing},
		{"one in an envelope of another form", said("/live", `{"type":"ping","message":{"query":"mutation Buy{a}"}}`), nothing},
		{"a message with a second name", said("/live", `{"type":"ping","event":"delete"}`), nothing},
		{"the envelope of socket.io", said("/socket.io/", `42["list",{}]`), Read},
		{"what is done in a view, by its name", said("/view", `["4","5","lv:phx","event",{"type":"click","event":"page"}]`), Read},
		{"and by how it is done", said("/view", `["4","5","lv:phx","event",{"type":"click","event":"delete"}]`), nothing},
		{"a query on a channel", said("/absinthe", `["1","2","control","doc",{"query":"query A{a}"}]`), Read},
		{"a mutation on a channel", said("/absinthe", `["1","2","control","doc",{"query":"mutation A{a}"}]`), nothing},
	} {
		t.Run(tt.why, func(t *testing.T) {
			v := b.Judge(tt.r, shape.Of(tt.r))
			got := v.Is
			if v.Repeatable {
				got += ", repeatable"
			}
			if got != tt.want {
				t.Errorf("%s is %q by %q, want %q", shape.Of(tt.r), got, v.Line, tt.want)
			}
			n := Noted{Method: tt.r.Method, Shape: shape.Of(tt.r), URL: tt.r.URL, Plain: Plain(tt.r)}
			if again, doubt := b.Again(n, nil); doubt == "" && (again.Is != v.Is || again.Repeatable != v.Repeatable) {
				t.Errorf("%s is %q by %q, and later %q by %q", shape.Of(tt.r), v.Is, v.Line, again.Is, again.Line)
			}
			if l, known := b.files[0].About(shape.Of(tt.r)); tt.want == nothing && Plain(tt.r) && known {
				t.Errorf("%s is said to be known by %q", shape.Of(tt.r), l.Text())
			}
		})
	}
}

// TestAWriteMayHaveItsNameInAnyForm: a line of a write with names in its query is about all that a server may
// read as these names.
func TestAWriteMayHaveItsNameInAnyForm(t *testing.T) {
	t.Parallel()
	b := book(t, `
name: shop
origins: ["https://shop.example"]
show: [do]
requests:
  - {shape: "POST /idx?route", is: write}
  - {shape: "POST /list?items[a]", is: write}
  - {shape: "POST /idx?do=delete", is: write}
  - {shape: "POST /**", is: read}
`)
	var many strings.Builder
	for i := range 60 {
		many.WriteString("&" + strings.Repeat(string(rune('a'+i%26)), 3+i/26) + "=1")
	}
	for query, want := range map[string]string{
		"/idx?route=1":                     Write,
		"/idx?route":                       Write,
		"/idx?route=1&route=2":             Write,
		"/idx?Route=1":                     Write,
		"/idx?route[]=1":                   Write,
		"/idx?route%5Ba%5D=1&route[b]=2":   Write,
		"/idx?%20route=1":                  Write,
		"/idx?r%6Fute=1":                   Write,
		"/idx?a=1;route=2":                 Write,
		"/idx?a=%zz&route=2":               Write,
		"/idx?" + many.String() + "&route": Write,
		"/list?items[a]=1":                 Write,
		"/list?ITEMS[A]=1":                 Write,
		"/list?items[b]=1":                 Read,
		"/list?item=1":                     Read,
		"/idx?do=delete":                   Write,
		"/idx?do=list":                     Read,
		"/idx?do=list&do=delete":           Write,
		"/idx?Do=delete":                   Write,
		"/idx?do=list&a=1;do=delete":       Write,
		"/idx?do=delete+all":               Read,
		"/idx?do=delete,":                  Write, // what a shape does not show may be it
		"/idx?router=1&a=route":            Read,
		"/idx":                             Read,
	} {
		r := post(query, "", nil)
		r.Show = b.Show(r.URL)
		if v := b.Judge(r, shape.Of(r)); v.Is != want {
			t.Errorf("%s is %q by %q, want %q", shape.Of(r), v.Is, v.Line, want)
		}
	}
	conditional := book(t, "name: s\norigins: [\"https://shop.example\"]\nrequests: [{shape: POST /ajax, where: {do: delete}, is: write}]\n")
	r := post("/ajax?do=list&a=1;do=delete", "", nil)
	if v := conditional.Judge(r, shape.Of(r)); v.Is != Write {
		t.Errorf("of a value behind another separator is said %+v", v)
	}
	said := shape.Of(post("/idx?"+many.String()+"&zroute", "", nil))
	if l, _ := b.files[0].About(said); l.Is != Write {
		t.Errorf("of %s, which does not have all names, is said %+v", said, l)
	}
}

// TestLinesAboutAllHostsBelow: the star of an origin stands in a line, in a place and in what a probe covers
// for what it stands for in the file's own origins.
func TestLinesAboutAllHostsBelow(t *testing.T) {
	t.Parallel()
	b := book(t, `
name: shop
origins: ["https://*.shop.example"]
requests:
  - {shape: "POST https://*.shop.example/ajax?delete", is: write}
  - {shape: "POST https://*.api.shop.example/**", is: write}
  - {shape: "GET https://*.shop.example/favourite/*", is: write}
  - {shape: "POST /**", is: read}
sensitive: ["https://*.shop.example/checkout/**"]
probes: [{name: cart, get: "https://www.shop.example/cart", take: ["$.n"], covers: ["POST https://*.shop.example/cart"]}]
`)
	for address, want := range map[string]string{
		"POST https://eu.shop.example/ajax?delete=1":      Write,
		"POST https://eu.shop.example/ajax":               Read,
		"POST https://eu.api.shop.example/items":          Write,
		"POST https://api.shop.example/items":             Read,
		"POST https://api.shop.example.evil.example/ajax": "",
		"GET https://a.b.shop.example/favourite/17":       Write,
		"GET http://a.b.shop.example/favourite/17":        "",
	} {
		method, raw, _ := strings.Cut(address, " ")
		r := shape.Request{Method: method, URL: raw, Whole: true}
		if got := b.Judge(r, shape.Of(r)).Is; got != want {
			t.Errorf("%s is %q, want %q", address, got, want)
		}
	}
	for raw, want := range map[string]bool{"https://eu.shop.example/checkout/pay": true, "https://shop.example/checkout": false} {
		if got := b.Sensitive(raw); got != want {
			t.Errorf("%s is sensitive: %t", raw, got)
		}
	}
	if !b.Covers("POST https://eu.shop.example/cart", "https://eu.shop.example/cart", true) {
		t.Error("what a probe covers at all hosts below is not covered")
	}
}

// TestAHostThatIsAStar is no pattern: what is said of its requests is said of no other host.
func TestAHostThatIsAStar(t *testing.T) {
	t.Parallel()
	r := shape.Request{Method: "POST", URL: "https://*.shop.example/ajax", Whole: true}
	if f, err := Teach([]File{parsed(t, shop)}, Line{Shape: shape.Of(r), Is: Read}); err == nil {
		other := shape.Request{Method: "POST", URL: "https://eu.shop.example/ajax", Whole: true}
		if b, _ := NewBook([]File{f}); b.Judge(other, shape.Of(other)).Is == Read {
			t.Errorf("of %s is said what was said of %s", shape.Of(other), shape.Of(r))
		}
	}
	b := book(t, "name: s\norigins: [\"https://*.shop.example\"]\nrequests: [{shape: POST /ajax, is: write}]\n")
	if v := b.Judge(r, shape.Of(r)); v.Is != Write {
		t.Errorf("a line about all hosts says %+v of %s", v, shape.Of(r))
	}
}

// TestSensitivePlaces: the query counts, in any order and beside others.
func TestSensitivePlaces(t *testing.T) {
	t.Parallel()
	b := book(t, shop)
	for raw, want := range map[string]bool{
		"https://shop.example/checkout":                        true,
		"https://shop.example/Checkout/a/b?c":                  true,
		"https://www.shop.example/admin?x=1&page=options":      true,
		"https://shop.example/admin?page=users&page=options":   true,
		"https://shop.example/admin?page=users":                false,
		"https://shop.example/admin":                           false,
		"https://shop.example/checkouts":                       false,
		"https://other.example/checkout":                       false,
		"https://shop.example/admin/?page=options#/somewhere":  true,
		"https://shop.example/help?next=/admin%3Fpage=options": false,
		"https://shop.example/admin?page=options;x":            true,
		"https://shop.example/admin?x;page=options":            true,
		"https://shop.example/admin?Page=options":              true,
		"https://shop.example/admin?page[]=options":            true,
		"https://shop.example/admin?x=%zz&page=options":        true,
		"https://shop.example/admin?x=page=options":            false,
	} {
		if got := b.Sensitive(raw); got != want {
			t.Errorf("%s: %v", raw, got)
		}
	}
}

// TestMistakesAreNamed with the line, and with what to write instead.
func TestMistakesAreNamed(t *testing.T) {
	t.Parallel()
	const head = "name: shop\norigins: [\"https://shop.example\"]\n"
	const wide = "name: a\norigins: [\"https://*.example\"]\n"
	for text, want := range map[string]string{
		"name: Shop\n":                           "line 1: name: \"Shop\": want 1 to 64 of a-z 0-9 _ -, such as shop",
		"name: shop\n":                           "origins: want the origins of the site",
		"name: shop\norigins: [shop.example]\n":  "line 2: origins[0]: \"shop.example\": want an origin in small letters",
		"name: shop\norigins: [\"https://*\"]\n": "origins[0]",
		head + "request: []\n":                   "line 3: unknown field \"request\": want name, origins, show, requests (shape, where",
		head + "requests:\n  - {shape: \"POST /a\", is: read}\n  - {shape: \"POST /b\", is: reads}\n":                       "line 5: requests[1].is: \"reads\": want read or write",
		head + "requests:\n  - {shape: \"/a\", is: read}\n":                                                                 "line 4: requests[0].shape: \"/a\": want METHOD PATH",
		head + "requests:\n  - {shape: \"POST /a/b**\", is: read}\n":                                                        "want ** as a whole segment",
		head + "requests:\n  - {shape: \"POST https://other.example/a\", is: read}\n":                                       "https://other.example is none of the origins",
		head + "requests:\n  - {shape: \"POST /a\", is: read, repeatable: true}\n":                                          "line 4: requests[0].repeatable",
		head + "requests:\n  - shape: POST /a\n    where:\n      b: {matches: \"(\"}\n    is: read\n":                       "line 6: requests[0].where: b: matches",
		head + "requests:\n  - {shape: \"POST /a\", where: {b: {}}, is: read}\n":                                            "want a text, {matches: REGULAR EXPRESSION}, or absent",
		head + "requests:\n  - {shape: \"POST /a\", where: {b: {equals: c}}, is: read}\n":                                   "unknown field",
		head + "requests:\n  - {shape: \"POST /a operation={}\", is: read}\n":                                               "{} stands for many operations",
		head + "sensitive: [checkout]\n":                                                                                    "line 3: sensitive[0]: \"checkout\": want a path",
		head + "probes:\n  - {name: a, get: /a, take: [\"total\"]}\n":                                                       "line 4: probes[0]: \"total\": want a JSON path",
		head + "rehearse: [{open: \"https://other.example/\"}]\n":                                                           "line 3: rehearse[0]: open \"https://other.example/\": want a path",
		head + "rehearse: [{open: /, take_text: \"a > b\"}]\n":                                                              "rehearse[0]: ",
		head + "rehearse: [{open: /}, {open: /}]\n":                                                                         "rehearse[1]: open \"/\" is there twice",
		head + "probes:\n  - {name: a, get: /a}\n":                                                                          "want either take",
		head + "identity: {get: \"https://evil.example/\", take_text: a}\n":                                                 "line 3: identity: get",
		head + "identity: {get: /, take_text: \"a > b\"}\n":                                                                 "line 3: identity: \"a > b\": want elements by tag",
		head + "headers: {Cookie: a}\n":                                                                                     "line 3: headers: \"Cookie\": want names",
		head + "headers: {X-HTTP-Method-Override: POST}\n":                                                                  "none that names another method",
		head + "bearer_from: localStorage.\n":                                                                               "line 3: bearer_from",
		head + "bearer_from: localStorage.a $.b[\n":                                                                         "line 3: bearer_from: \"$.b[\": want a JSON path",
		head + "bearer_from: localStorage. $.b\n":                                                                           "localStorage.NAME $.token",
		"name: a\norigins: [\"https://*.a.example\"]\nidentity: {get: /, take_text: a}\n":                                   "line 3: identity: get \"/\" is relative to the first of the origins",
		wide + "requests:\n  - {shape: \"POST https://a.*.example/b\", is: read}\n":                                         "line 4: requests[0].shape: \"POST https://a.*.example/b\": want a whole origin",
		wide + "sensitive: [\"https://a.*.example/b\"]\n":                                                                   "line 3: sensitive[0]: ",
		wide + "probes: [{name: a, get: \"https://x.a.example/\", take_text: a, covers: [\"POST https://*a.example/\"]}]\n": "covers: \"POST https://*a.example/\": want a whole origin",
		wide + "identity: {get: \"https://*.a.example/me\", take_text: a}\n":                                                "line 3: identity: get \"https://*.a.example/me\" is asked at one host",
		wide + "rehearse: [{open: \"https://*.a.example/\"}]\n":                                                             "line 3: rehearse[0]: open \"https://*.a.example/\" is asked at one host",
		wide + "sign_in: {url: \"https://*.a.example/\", password: a}\n":                                                    "line 3: sign_in: url \"https://*.a.example/\" is asked at one host",
		head + "extends: wordpress\n":                                                                                       "line 3: extends: \"wordpress\": want one of the files that come with the program: nodered, ",
		`{"name":"shop","origins":["https://shop.example"],"requests":[{"shape":"POST /a","is":"write"}],"requests":[]}`:    "requests is there twice",
		`{"name":"shop","origins":["https://shop.example"],"requests":[{"shape":"POST /a","is":"write"}],"Requests":[]}`:    "Requests is there twice",
		`{"name":"shop","origins":["https://shop.example"],"requests":[{"shape":"POST /a","is":"write","is":"read"}]}`:      "requests[0].is is there twice",
		`{"name":"shop","origin":[]}`:                                                                                       "unknown field \"origin\": want name, origins",
		head + "show: " + strings.Repeat("[a,", MaxBytes/2):                                                                 "bytes: want at most",
		head + "---\nname: shop\nrequests: [{shape: POST /a, is: write}]\n":                                                 "line 4: a second document begins: want one file about one site",
		head + "...\nrequests: [{shape: POST /a, is: write}]\n":                                                             "a second document begins",
		"---\n" + head + "---\n# POST /a writes\n---\n[]\n":                                                                 "a second document begins",
		`{"name":"shop"} {"name":"shop"}`:                                                                                   "",
		"name: shop\nname: shop\n":                                                                                          "line 2: ",
	} {
		_, err := Parse([]byte(text))
		var wrong *Error
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200q\nis refused with %v\nwant %s", text, err, want)
		}
	}
}

// TestWhatIsNotThereTwice: one document with marks and comments around it, and names of the site's own that
// differ in capitals.
func TestWhatIsNotThereTwice(t *testing.T) {
	t.Parallel()
	const head = "name: shop\norigins: [\"https://shop.example\"]\n"
	own := `{"name":"shop","origins":["https://shop.example"],"requests":[{"shape":"POST /a","where":{"a":"1","A":"1"},"is":"write"}],"headers":{"X-a":"1","X-A":"2"}}`
	for _, text := range []string{own, "---\n" + head, head + "---\n", head + "...\n", "# a\n---\n" + head + "...\n", head + "---\n# no more\n", head + "# ---\n", "%YAML 1.2\n---\n" + head, head + "extends: \"\"\n\n"} {
		if f, err := Parse([]byte(text)); err != nil || f.Name != "shop" {
			t.Errorf("%q: %+v, %v", text, f, err)
		}
	}
}

// TestBothFormsSayTheSame: YAML and JSON are one file, and neither loses anything when it is
// written and read again.
func TestBothFormsSayTheSame(t *testing.T) {
	t.Parallel()
	f, err := Parse([]byte(shop))
	if err != nil {
		t.Fatal(err)
	}
	j, _ := json.Marshal(f)
	y, err := yaml.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range [][]byte{j, y} {
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if k, _ := json.Marshal(again); string(k) != string(j) {
			t.Errorf("is  %s\nwas %s", k, j)
		}
	}
}

// FuzzParse: what is read can be written and read again, and says the same.
func FuzzParse(f *testing.F) {
	f.Add(shop)
	f.Add(`{"name":"a","origins":["https://a.example"],"requests":[{"shape":"POST /","where":{"a":{"equal":"absent"}},"is":"read"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		one, err := Parse([]byte(text))
		if err != nil {
			return
		}
		j, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		two, err := Parse(j)
		if err != nil && len(j) <= MaxBytes {
			t.Fatalf("%v: %s", err, j)
		}
		for i := range two.Requests {
			if one.Requests[i].Text() != two.Requests[i].Text() {
				t.Errorf("%q and %q", one.Requests[i].Text(), two.Requests[i].Text())
			}
		}
	})
}

// FuzzJudge: a line of one shape never says anything of a request with another one.
func FuzzJudge(f *testing.F) {
	f.Add("POST", "/cart/17?a=b", "application/json", `{"query":"query A{a}"}`, "POST", "/cart", `{"query":"mutation{a}"}`)
	f.Add("WEBSOCKET", "/live", "", `{"type":"ping"}`, "WEBSOCKET", "/live", `42["a"]`)
	f.Fuzz(func(t *testing.T, method, path, media, body, method2, path2, body2 string) {
		headers := map[string]string{"Content-Type": media}
		one := shape.Request{Method: method, URL: "https://shop.example" + path, Headers: headers, Body: body, Whole: true}
		two := shape.Request{Method: method2, URL: "https://shop.example" + path2, Headers: headers, Body: body2, Whole: true}
		b, wrong := NewBook([]File{{Name: "s", Origins: []string{"https://shop.example"}, Requests: []Line{{Shape: shape.Of(one), Is: Read}}}})
		if wrong != nil {
			return
		}
		if v := b.Judge(two, shape.Of(two)); v.Is == Read && shape.Of(one) != shape.Of(two) && shape.Content(shape.Of(one)) != "" {
			if !strings.HasPrefix(shape.Of(two), strings.SplitN(shape.Of(one), "(", 2)[0]) {
				t.Errorf("%s of %s", shape.Of(one), shape.Of(two))
			}
		}
	})
}

// BenchmarkJudge: a request to one of a thousand sites, and a GET that no line is about.
func BenchmarkJudge(b *testing.B) {
	var files []File
	for i := range 1000 {
		f, err := Parse([]byte(strings.ReplaceAll(strings.ReplaceAll(shop, "shop.example", "shop"+strconv.Itoa(i)+".example"), "name: shop\n", "name: shop"+strconv.Itoa(i)+"\n")))
		if err != nil {
			b.Fatal(err)
		}
		files = append(files, f)
	}
	book, _ := NewBook(files)
	for name, r := range map[string]shape.Request{
		"post": {Method: "POST", URL: "https://www.shop7.example/v1/items", Body: `{"filter":{"kind":"open"}}`, Headers: asJSON, Whole: true},
		"get":  {Method: "GET", URL: "https://cdn.other.example/a.png", Whole: true},
	} {
		s := shape.Of(r)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				book.Judge(r, s)
			}
		})
	}
}
