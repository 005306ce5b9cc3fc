package monitor

import (
	"fmt"
	"testing"

	"leasehold/cdpproxy"
	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
	"leasehold/checkpoint/site"
)

// TestRequestsAreJudgedByWhatIsKnownOfTheirSites at the moment at which they are sent: the journal
// says what was known, and by which line. A GET that is known to write counts whoever caused it.
func TestRequestsAreJudgedByWhatIsKnownOfTheirSites(t *testing.T) {
	book := func(lines string) *site.Book {
		f, err := site.Parse([]byte("name: shop\norigins: [\"http://shop.example\"]\nshow: [action]\nrequests:\n" + lines))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := site.NewBook([]site.File{f})
		return b
	}
	now := (*site.Book)(nil)
	var found []string
	m := direct(func(e checkpoint.Entry) {
		if e.Kind == checkpoint.KindRequest || e.Kind == checkpoint.KindGetWrite {
			found = append(found, fmt.Sprint(e.Shape, " ", e.Known, " ", e.KnownBy, " ", e.Repeatable, " ", e.Name))
		}
	})
	m.KnowSites(func() *site.Book { return now })
	number := 0
	post := func(body string) {
		number++
		m.processHeard(heard{traffic: cdpproxy.Traffic{Method: ledger.Sent, Params: fmt.Appendf(nil,
			`{"requestId":"p%d","type":"Fetch","request":{"url":"http://shop.example/ajax","method":"POST","headers":{"Content-Type":"application/x-www-form-urlencoded"},"postData":%q,"hasPostData":true}}`, number, body)}})
	}
	get := func(path, initiator string, status int) {
		number++
		for _, e := range []cdpproxy.Event{
			{Session: "S", Method: ledger.Sent, Params: fmt.Appendf(nil, `{"requestId":"g%d","loaderId":"L","documentURL":"http://shop.example/","request":{"url":"http://shop.example%s","method":"GET"},"initiator":{"type":%q},"type":"Image","frameId":"F"}`, number, path, initiator)},
			{Session: "S", Method: ledger.Answered, Params: fmt.Appendf(nil, `{"requestId":"g%d","loaderId":"L","response":{"status":%d,"mimeType":"text/html","headers":{}},"type":"Image","frameId":"F"}`, number, status)},
		} {
			m.readerEvent(e)
		}
	}
	wants := func(when string, want ...string) {
		t.Helper()
		if fmt.Sprintf("%q", found) != fmt.Sprintf("%q", want) {
			t.Errorf("%s: %q, want %q", when, found, want)
		}
		found = nil
	}
	const shape = "POST http://shop.example/ajax form(action"
	post("action=heartbeat")
	get("/favourite/7", "parser", 200)
	wants("nothing is known", shape+")   false ")
	now = book("  - {shape: \"POST /ajax\", where: {action: heartbeat}, is: read}\n  - {shape: \"GET /favourite/*\", is: write, repeatable: true}\n")
	post("action=heartbeat")
	post("action=like")
	get("/favourite/7", "parser", 200)
	get("/favourite/8", "script", 403)
	get("/list", "parser", 200)
	wants("the file is there",
		shape+`=heartbeat) read shop: POST /ajax where action="heartbeat" is read false `, shape+"=like)   false ",
		"GET http://shop.example/favourite/{} write shop: GET /favourite/* is write, repeatable true known")
	now = book("  - {shape: \"POST /ajax\", is: write}\n")
	post("action=heartbeat")
	get("/favourite/7", "parser", 200)
	wants("it was changed", shape+"=heartbeat) write shop: POST /ajax is write false ")
}
