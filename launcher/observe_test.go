package launcher

import "testing"

// What a page's own session and the browser's tell of the same navigation is one
// entry, whichever comes first, and also where the page's own never comes.
func TestWhereAPageWentIsNotedOnce(t *testing.T) {
	type told struct {
		url   string
		early bool
		want  bool
	}
	for _, c := range []struct {
		name  string
		tells []told
	}{
		{"the page first", []told{{"/a", false, true}, {"/a", true, false}, {"/b", false, true}, {"/b", true, false}}},
		{"the browser first", []told{{"/a", true, true}, {"/a", false, false}, {"/b", true, true}, {"/b", false, false}}},
		{"the browser only", []told{{"", true, false}, {"about:blank", true, false}, {"/a", true, true}, {"/a", true, false}}},
		{"a reload", []told{{"/a", false, true}, {"/a", true, false}, {"/a", false, true}}},
		{"a reload after the browser was first", []told{{"/a", true, true}, {"/a", true, false}, {"/a", false, false}, {"/a", false, true}}},
		{"back again", []told{{"/a", false, true}, {"/b", false, true}, {"/a", false, true}}},
		{"to an empty page", []told{{"/a", false, true}, {"about:blank", false, true}, {"/a", true, true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			pg := &page{}
			for i, told := range c.tells {
				entry := pg.went(told.url, told.early)
				if (entry != nil) != told.want || entry != nil && entry.URL != told.url {
					t.Errorf("%d: %+v gave %+v", i, told, entry)
				}
			}
		})
	}
}
