package chrome

import (
	"slices"
	"testing"
)

func TestProxyPorts(t *testing.T) {
	for proxy, want := range map[string][]uint16{
		"http://127.0.0.1:40000":     {40000},
		"socks5://[::1]:1080":        {1080},
		"https://[2001:db8::a]:443":  {443},
		"http://proxy.example:3128":  {3128, 53},
		"http://proxy-1:65535":       {65535, 53},
		"http://127.0.0.1:65536":     nil,
		"http://127.0.0.1":           nil,
		"http://user:pa%zz@host:123": nil,
	} {
		got, err := proxyPorts(proxy)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%s: %v, %v; want %v", proxy, got, err, want)
		}
	}
}

func TestDisplayPort(t *testing.T) {
	for display, want := range map[string]uint16{
		"": 0, ":0": 0, ":99.0": 0, "unix:0": 0, "host": 0, "host:x": 0, "host:60000": 0,
		"localhost:10.0": 6010, "host:0": 6000, "10.0.0.1:1": 6001,
	} {
		if got, ok := displayPort(display); got != want || ok != (want != 0) {
			t.Errorf("%q: %d, %v; want %d", display, got, ok, want)
		}
	}
}
