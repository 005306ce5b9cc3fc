package site

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"leasehold/checkpoint/shape"
)

// TestTeaching: what is said of a shape goes before all other lines, in the place of what was said of
// it, into the file that is nearest.
func TestTeaching(t *testing.T) {
	const whole = "POST https://api.shop.example/cart/{}?ref form(color)"
	files := []File{
		{Name: "all", Origins: []string{"https://*.shop.example"}, Requests: []Line{{Shape: "POST /**", Is: Write}}},
		{Name: "api", Origins: []string{"https://api.shop.example"}, Requests: []Line{{Shape: "POST /**", Is: Write}, {Shape: whole, Is: Write, Incident: "old"}, {Shape: whole, Is: Read, Where: map[string]Condition{"color": short("red")}}}},
	}
	for _, tt := range []struct {
		name, shape, is string
		file, origins   string
		lines           []string // their shapes and what they are
	}{
		{"said again", whole, Read, "api", "https://api.shop.example", []string{whole + " read", "POST /** write", whole + " read"}},
		{"taken back", whole, "", "api", "https://api.shop.example", []string{"POST /** write", whole + " read"}},
		{"in the file of the hosts below", "POST https://www.shop.example/like", Write, "all", "https://*.shop.example", []string{"POST https://www.shop.example/like write", "POST /** write"}},
		{"of a path alone", "POST /cart", Write, "", "", nil},
		{"in a new file", "POST https://other.example:8443/x", Write, "other-example-8443", "https://other.example:8443", []string{"POST https://other.example:8443/x write"}},
		{"in a new file, if another site has the name", "POST http://all/x", Read, "all-2", "http://all", []string{"POST http://all/x read"}},
		{"a message", "WEBSOCKET wss://api.shop.example/live type=ping", Read, "api", "https://api.shop.example",
			[]string{"WEBSOCKET wss://api.shop.example/live type=ping read", "POST /** write", whole + " write", whole + " read"}},
	} {
		before := len(files[1].Requests)
		f, err := Teach(files, Line{Shape: tt.shape, Is: tt.is})
		var lines []string
		for _, l := range f.Requests {
			lines = append(lines, l.Shape+" "+l.Is)
		}
		if wrong := (*Error)(nil); tt.file == "" {
			if !errors.As(err, &wrong) {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if err != nil || f.Name != tt.file || strings.Join(f.Origins, " ") != tt.origins || !slices.Equal(lines, tt.lines) {
			t.Errorf("%s: %s %v %q %v, want %s %s %q", tt.name, f.Name, f.Origins, lines, err, tt.file, tt.origins, tt.lines)
		}
		if said, ok := f.Says(tt.shape); ok != (tt.is != "") || ok && said.Is != tt.is {
			t.Errorf("%s: it says %+v, %t", tt.name, said, ok)
		}
		if len(files[1].Requests) != before {
			t.Fatalf("%s: the file that was there has changed", tt.name)
		}
	}
}

// TestWhatIsTaughtOfAStarInAnAddress is said of that address only.
func TestWhatIsTaughtOfAStarInAnAddress(t *testing.T) {
	t.Parallel()
	for raw, other := range map[string]string{"https://es.example/**": "https://es.example/orders/42/delete", "https://es.example/_mget*": "https://es.example/_mget_delete"} {
		r := shape.Request{Method: "POST", URL: raw, Whole: true}
		f, err := Teach(nil, Line{Shape: shape.Of(r), Is: Read})
		if err != nil {
			t.Fatal(err)
		}
		b, _ := NewBook([]File{f})
		if v := b.Judge(r, shape.Of(r)); v.Is != Read {
			t.Errorf("%s, of which it was said, is %+v", raw, v)
		}
		r.URL = other
		if v := b.Judge(r, shape.Of(r)); v.Is != "" {
			t.Errorf("%s is %+v", other, v)
		}
	}
}

// TestTeachingOneSiteSaysNothingOfAnother, although their names are alike.
func TestTeachingOneSiteSaysNothingOfAnother(t *testing.T) {
	t.Parallel()
	files := []File{{Name: "a-b-example", Origins: []string{"https://a-b.example"}, Requests: []Line{{Shape: "POST /ajax", Is: Read}}}}
	for _, origin := range []string{"https://a.b.example", "http://a-b.example", "https://a-b.example:443/x", "https://a.b-example"} {
		f, err := Teach(files, Line{Shape: "POST " + strings.TrimSuffix(origin, "/x") + "/buy", Is: Write})
		if err != nil {
			t.Fatal(err)
		}
		files = append(slices.DeleteFunc(files, func(o File) bool { return o.Name == f.Name }), f)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name+" "+strings.Join(f.Origins, " "))
	}
	slices.Sort(names)
	if want := []string{"a-b-example https://a-b.example", "a-b-example-2 https://a.b.example", "a-b-example-3 http://a-b.example", "a-b-example-4 https://a.b-example"}; !slices.Equal(names, want) {
		t.Errorf("the files are %q, want %q", names, want)
	}
	b, wrong := NewBook(files)
	for raw, want := range map[string]string{"https://a-b.example/ajax": Read, "https://a.b.example/ajax": "", "http://a-b.example/ajax": ""} {
		r := shape.Request{Method: "POST", URL: raw, Whole: true}
		if v := b.Judge(r, shape.Of(r)); v.Is != want {
			t.Errorf("%s is %+v, want %q: %v", raw, v, want, wrong)
		}
	}
	long := "https://" + strings.Repeat("a.", 40) + "example"
	if f := FileFor([]File{FileFor(nil, long)}, strings.Replace(long, "a.a", "a-a", 1)); CheckName(f.Name) != nil || !strings.HasSuffix(f.Name, "-2") {
		t.Errorf("beside a long name stands %q", f.Name)
	}
}
