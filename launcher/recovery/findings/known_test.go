package findings

import (
	"testing"
	"time"

	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
	"leasehold/checkpoint/site"
	"leasehold/launcher/recovery/table"
)

// sites is the book of one file.
func sites(t *testing.T, text string) *site.Book {
	t.Helper()
	f, err := site.Parse([]byte("name: shop\norigins: [\"https://shop.example\"]\n" + text))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := site.NewBook([]site.File{f})
	return b
}

// TestWhatIsKnownOfASiteDecides, as long as it is said; and a checkpoint covers what it names, and
// what is known as repeatable.
func TestWhatIsKnownOfASiteDecides(t *testing.T) {
	b := sites(t, `requests:
  - {shape: "POST /search", is: read}
  - {shape: "POST /cart", is: write, repeatable: true}
  - {shape: "GET /settings", is: read}
sensitive: ["/vip?tab=money"]
`)
	const searches, buys = "shop: POST /search is read", "shop: POST /cart is write, repeatable"
	request := func(path, known, by string) checkpoint.Entry {
		return checkpoint.Entry{
			Kind: checkpoint.KindRequest, Method: "POST", URL: "https://shop.example" + path, Shape: "POST https://shop.example" + path + " form(a)",
			Known: known, KnownBy: by, Repeatable: known == site.Write, Plain: true,
		}
	}
	read, write := request("/search", site.Read, searches), request("/cart", site.Write, buys)
	vote, once := request("/votes", "", ""), request("/cart", site.Write, "shop: POST /cart is write, repeatable, once")
	query := write
	query.Name, query.Status = checkpoint.GraphQLQuery, 200
	abroad := request("/cart", site.Write, buys)
	abroad.URL, abroad.Anonymous = "https://stats.example/", true
	named := idempotent("a")
	named.IdempotentShapes = []string{"POST /votes"}
	hiding := vote
	hiding.Plain = false
	sensitive := read
	sensitive.Sensitive = true
	for _, tt := range []struct {
		name    string
		journal []checkpoint.Entry
		known   *site.Book
		want    string
	}{
		{"a read", []checkpoint.Entry{read}, b, table.Release},
		{"a read, which nobody says any more", []checkpoint.Entry{read}, nil, table.ManualReview},
		{"a read at a place that the task calls sensitive", []checkpoint.Entry{sensitive}, b, table.ManualReview},
		{"a read after a checkpoint", []checkpoint.Entry{safe("a"), read}, b, table.Resume},
		{"a write", []checkpoint.Entry{write}, b, table.ManualReview},
		{"a write that looks like a query", []checkpoint.Entry{query}, b, table.ManualReview},
		{"a write without cookies", []checkpoint.Entry{abroad}, b, table.ManualReview},
		{"a write that may be repeated, after a checkpoint", []checkpoint.Entry{safe("a"), write}, b, table.ManualReview},
		{"after one that declares", []checkpoint.Entry{idempotent("a"), write}, b, table.Resume},
		{"after one that declares, and the line is gone", []checkpoint.Entry{idempotent("a"), once}, b, table.ManualReview},
		{"what a checkpoint names", []checkpoint.Entry{named, vote}, b, table.Resume},
		{"what it names, with another method in a header", []checkpoint.Entry{named, hiding}, b, table.ManualReview},
		{"what it names and what may be repeated", []checkpoint.Entry{named, vote, write, read}, b, table.Resume},
		{"what it names and another", []checkpoint.Entry{named, vote, request("/pay", "", "")}, b, table.ManualReview},
		{"what it does not name", []checkpoint.Entry{idempotent("a"), vote}, b, table.ManualReview},
		{"a page whose word is sensitive", []checkpoint.Entry{visit("https://shop.example/preferences")}, b, table.ManualReview},
		{"one of which the owner says that it reads", []checkpoint.Entry{visit("https://shop.example/settings")}, b, table.Release},
		{"a page that is sensitive by its query", []checkpoint.Entry{visit("https://shop.example/vip?tab=money")}, b, table.ManualReview},
		{"the page without it", []checkpoint.Entry{visit("https://shop.example/vip?tab=news")}, b, table.Release},
	} {
		found := append(sane(), InspectTask(checkpoint.Summarize(tt.journal), Task{Resumable: true, Sites: tt.known})...)
		if d := table.Decide(found); d.Outcome != tt.want {
			t.Errorf("%s: %s %q, want %s", tt.name, d.Outcome, d.Reasons, tt.want)
		}
	}
	if SensitiveURL("https://shop.example/settings", Task{Harmless: []string{"GET https://shop.example/settings"}}) {
		t.Error("what the profile's owner says of a URL does not go before a word")
	}
}

// TestWhatIsSaidLaterGoesBeforeALine by which a request was judged when it was sent: a line that was put
// before it says that the request writes, or the site is no longer the one of the line.
func TestWhatIsSaidLaterGoesBeforeALine(t *testing.T) {
	const ajax, anything = "shop: POST /ajax is read", "shop: POST /ajax is write, repeatable"
	buy := checkpoint.Entry{
		Kind: checkpoint.KindRequest, Method: "POST", URL: "https://shop.example/ajax", Shape: "POST https://shop.example/ajax form(buy)",
		Plain: true, Known: site.Read, KnownBy: ajax, At: time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC), Status: 200,
	}
	since := func(b *site.Book) *site.Book {
		with, err := b.With(site.File{Name: "other", Origins: []string{"https://other.example"}})
		if err != nil {
			t.Fatal("adding a file:", err)
		}
		with.Begin(b, buy.At.Add(time.Minute))
		return with
	}
	later := func(b *site.Book) *site.Book { b.Begin(nil, buy.At.Add(time.Minute)); return b }
	file := func(text string) site.File {
		t.Helper()
		f, err := site.Parse([]byte("name: shop\norigins: [\"https://shop.example\"]\n" + text))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	taught := func(text string) *site.Book {
		t.Helper()
		f, err := site.Teach([]site.File{file(text)}, site.Line{Shape: buy.Shape, Is: site.Write})
		if err != nil {
			t.Fatal(err)
		}
		b, _ := site.NewBook([]site.File{f})
		return b
	}
	moved := file(`requests: [{shape: "POST /ajax", is: read}]`)
	moved.Origins = []string{"https://other.example"}
	elsewhere, _ := site.NewBook([]site.File{moved})
	const conditional = `requests: [{shape: "POST /ajax", where: {buy: all}, is: write}, {shape: "POST /ajax", is: read}]`
	again := buy
	again.Known, again.KnownBy, again.Repeatable = site.Write, anything, true
	query := buy
	query.Known, query.KnownBy, query.Name = "", "", checkpoint.GraphQLQuery
	stranger := query
	stranger.Name, stranger.Anonymous = "", true
	get := buy
	get.Kind, get.Method, get.URL, get.Shape, get.KnownBy = checkpoint.KindGetAfter, "GET", "https://shop.example/fav", "", "shop: GET /* is read"
	asked := table.Caution{Fact: table.GetsAfterAction, Answer: table.Yes}
	for _, tt := range []struct {
		name    string
		journal []checkpoint.Entry
		known   *site.Book
		want    string
	}{
		{"nothing else", []checkpoint.Entry{buy}, later(sites(t, `requests: [{shape: "POST /ajax", is: read}]`)), table.Release},
		{"it writes", []checkpoint.Entry{buy}, taught(`requests: [{shape: "POST /ajax", is: read}]`), table.ManualReview},
		{"the site has another origin", []checkpoint.Entry{buy}, elsewhere, table.ManualReview},
		{"a broader line writes", []checkpoint.Entry{buy}, sites(t, `requests: [{shape: "POST /**", is: write}, {shape: "POST /ajax", is: read}]`), table.ManualReview},
		{"another request writes", []checkpoint.Entry{buy}, later(sites(t, `requests: [{shape: "POST /cart", is: write}, {shape: "POST /ajax", is: read}]`)), table.Release},
		{"it may write", []checkpoint.Entry{buy}, later(sites(t, conditional)), table.ManualReview},
		{"the condition was there, and was not met", []checkpoint.Entry{buy}, sites(t, conditional), table.Release},
		{"another file is new since then", []checkpoint.Entry{buy}, since(sites(t, conditional)), table.Release},
		{"it may be repeated", []checkpoint.Entry{idempotent("a"), again}, later(sites(t, `requests: [{shape: "POST /ajax", is: write, repeatable: true}]`)), table.Resume},
		{"it may not be repeated", []checkpoint.Entry{idempotent("a"), again}, taught(`requests: [{shape: "POST /ajax", is: write, repeatable: true}]`), table.ManualReview},
		{"a query", []checkpoint.Entry{query}, sites(t, ""), table.Release},
		{"a query writes", []checkpoint.Entry{query}, taught(""), table.ManualReview},
		{"what carried nothing of the account", []checkpoint.Entry{stranger}, sites(t, ""), table.Release},
		{"what carried nothing of the account writes", []checkpoint.Entry{stranger}, taught(""), table.ManualReview},
		{"a GET reads", []checkpoint.Entry{get}, sites(t, `requests: [{shape: "GET /*", is: read}]`), table.Release},
		{"a GET writes", []checkpoint.Entry{get}, sites(t, `requests: [{shape: "GET /fav", is: write}, {shape: "GET /*", is: read}]`), table.ManualReview},
	} {
		found := append(sane(), InspectTask(checkpoint.Summarize(tt.journal), Task{Resumable: true, Sites: tt.known})...)
		if d := table.Decide(found, asked); d.Outcome != tt.want {
			t.Errorf("%s: %s %q, want %s", tt.name, d.Outcome, d.Reasons, tt.want)
		}
	}
}

// TestAGetIsKnownToWrite, whoever caused it, unless it was refused.
func TestAGetIsKnownToWrite(t *testing.T) {
	g := ledger.Get{From: "https://other.example/", Asked: "https://shop.example/a", Final: "https://shop.example/a", Status: 200, Writes: "shop: GET /a is write"}
	if got := SignOf(g); got != Known {
		t.Errorf("%q", got)
	}
	if g.Status = 403; SignOf(g) != "" {
		t.Error("a refused request changed nothing")
	}
}
