package chromever

import "testing"

func TestAllFourNumbersCount(t *testing.T) {
	for _, tt := range []struct {
		a, b  string
		older bool
	}{
		{"156.0.8078.79", "156.0.8078.79", false},
		{"156.0.8078.79", "156.0.8078.108", true},
		{"156.0.8078.108", "156.0.8078.79", false},
		{"156.0.8078.79", "157.0.1.2\n", true},
		{"99.0.4844.51", "100.0.4896.60", true},
		{"156.0.8079.1", "156.0.8078.108", false},
		{"156.0.8078.79", "", false},
		{"", "156.0.8078.79", false},
		{"156.0.8078.79", "999", false},
		{"156.0.8078.79", "999.a.b.c", false},
	} {
		if got := Older(tt.a, tt.b); got != tt.older {
			t.Errorf("%q is older than %q: %t", tt.a, tt.b, got)
		}
	}
	if got := In("Chromium 156.0.8078.79 built on Debian GNU/Linux 13 (trixie)\n"); got != "156.0.8078.79" {
		t.Errorf("found %q", got)
	}
}
