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
		{"in the file that has the name already", "POST http://all/x", Read, "all", "https://*.shop.example http://all", []string{"POST http://all/x read", "POST /** write"}},
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
