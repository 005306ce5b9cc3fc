package slots

import "testing"

func TestMemoryIsRead(t *testing.T) {
	const info = "MemTotal:       24684084 kB\nMemFree:        21928736 kB\nMemAvailable:   22627840 kB\nHugePages_Total:       0\n"
	const pressure = "some avg10=12.50 avg60=3.00 avg300=0.10 total=1234\nfull avg10=4.25 avg60=1.00 avg300=0.00 total=567\n"
	for _, tt := range []struct {
		name, info, pressure string
		want                 memory
	}{
		{"both", info, pressure, memory{22627840 << 10, 12.5, 4.25}},
		{"a kernel without pressure", info, "", memory{available: 22627840 << 10}},
		{"full is not told of everything", info, "some avg10=1.00 avg60=0.00 avg300=0.00 total=0\n", memory{available: 22627840 << 10, some: 1}},
		{"an old kernel", "MemTotal: 1 kB\nMemFree: 1 kB\n", "", memory{}},
		{"cut short", "MemAvailable:   226", "some avg10=", memory{}},
		{"no numbers", "MemAvailable: -1 kB\n", "some avg10=x\nfull avg10\n\n", memory{}},
		{"more than there can be", "MemAvailable: 18446744073709551615 kB\n", "", memory{}},
	} {
		if got := parseMemory([]byte(tt.info), []byte(tt.pressure)); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
	if m, err := readMemory(); err != nil || m.available == 0 {
		t.Errorf("this host's: %+v, %v", m, err)
	}
}

func TestMemoryIsShort(t *testing.T) {
	const gib = 1 << 30
	for _, tt := range []struct {
		name  string
		m     memory
		least uint64
		short bool
	}{
		{"plenty", memory{available: 8 * gib}, gib, false},
		{"just enough", memory{available: gib}, gib, false},
		{"a byte too little", memory{available: gib - 1}, gib, true},
		{"available is not known", memory{}, gib, false},
		{"some wait", memory{available: 8 * gib, some: pressureSome}, gib, true},
		{"some wait a little", memory{available: 8 * gib, some: pressureSome - 0.01, full: pressureFull - 0.01}, gib, false},
		{"all wait", memory{available: 8 * gib, some: 11, full: pressureFull}, gib, true},
		{"not watched", memory{available: 1, some: 99, full: 99}, 0, false},
	} {
		if why := tt.m.short(tt.least); (why != "") != tt.short {
			t.Errorf("%s: %q, want short: %v", tt.name, why, tt.short)
		}
	}
}
