package slots

import "testing"

func TestArgument(t *testing.T) {
	line := []byte("chrome\x00--proxy-server=a\x00--x=--proxy-server=b\x00--proxy-server=c\x00")
	if got := argument(line, "--proxy-server="); got != "c" {
		t.Errorf("got %q: Chrome takes the last", got)
	}
	if got := argument(line, "--none="); got != "" {
		t.Errorf("got %q", got)
	}
}
