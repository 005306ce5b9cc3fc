package lease

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

func TestLabels(t *testing.T) {
	many := Labels{}
	for i := range maxLabels + 1 {
		many[fmt.Sprint("l", i)] = ""
	}
	for name, tt := range map[string]struct {
		labels          Labels
		refused, asking string
	}{
		"none":              {nil, "", ""},
		"usual":             {Labels{"region": "us-east", "team.example/tier": "1", "owner": "ann@example+x"}, "", ""},
		"empty":             {Labels{"a": ""}, "", ""},
		"a pattern":         {Labels{"a": "us-*"}, "label a: value \"us-*\"", ""},
		"a comma":           {Labels{"a": "b,c"}, "label a", "label a"},
		"a colon in a name": {Labels{"a:b": "c"}, "label \"a:b\"", "label \"a:b\""},
		"no name":           {Labels{"": "c"}, "label \"\"", "label \"\""},
		"a long name":       {Labels{strings.Repeat("a", 64): "c"}, "1 to 63", "1 to 63"},
		"a long value":      {Labels{"a": strings.Repeat("a", 64)}, "at most 63", "at most 63"},
		"a control byte":    {Labels{"a": "\x00"}, "label a", "label a"},
		"too many":          {many, "at most 32", "at most 32"},
	} {
		for _, c := range []struct {
			err  error
			want string
		}{{tt.labels.Check(), tt.refused}, {tt.labels.CheckAsked(), tt.asking}} {
			if (c.err == nil) != (c.want == "") || c.err != nil && !strings.Contains(c.err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", name, c.err, c.want)
			}
		}
		if tt.refused == "" {
			if again, err := ParseLabels(tt.labels.Texts()); err != nil || !maps.Equal(again, tt.labels) {
				t.Errorf("%s: comes back as %v, %v", name, again, err)
			}
		}
	}
	for _, texts := range [][]string{{"us"}, {"a:1", "a:2"}, {""}} {
		if l, err := ParseLabels(texts); err == nil {
			t.Errorf("%q is read as %v", texts, l)
		}
	}
}
