package procfs

import (
	"os"
	"testing"
)

// TestOwnMemory: the kernel's own files have the form that is read.
func TestOwnMemory(t *testing.T) {
	m, err := ReadMemory(os.Getpid())
	if err != nil || m.Resident == 0 || m.Shared > m.Resident {
		t.Errorf("%+v, %v", m, err)
	}
	pss, err := Proportional(os.Getpid())
	if err != nil || pss == 0 || pss > 4*m.Resident {
		t.Errorf("PSS %d of %+v, %v", pss, m, err)
	}
}

func TestHostMemory(t *testing.T) {
	const info = "MemTotal:       8000 kB\nMemFree:         100 kB\nMemAvailable:   3000 kB\nHugePages_Total:       0\n"
	const pressure = "some avg10=12.50 avg60=1.00 avg300=0.10 total=7\nfull avg10=3.25 avg60=0.50 avg300=0.05 total=3\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  HostMemory
		fails bool
	}{
		{"both", map[string]string{"meminfo": info, "pressure/memory": pressure}, HostMemory{8000 << 10, 3000 << 10, 12.5, 3.25}, false},
		{"no pressure", map[string]string{"meminfo": info}, HostMemory{Total: 8000 << 10, Available: 3000 << 10}, false},
		{"pressure of another form", map[string]string{"meminfo": info, "pressure/memory": "some of it\n"}, HostMemory{Total: 8000 << 10, Available: 3000 << 10}, false},
		{"some alone", map[string]string{"meminfo": info, "pressure/memory": "some avg10=1.00 avg60=0.00 avg300=0.00 total=0\n"}, HostMemory{8000 << 10, 3000 << 10, 1, 0}, false},
		{"no MemAvailable", map[string]string{"meminfo": "MemTotal: 8000 kB\n", "pressure/memory": pressure}, HostMemory{}, true},
		{"no meminfo", map[string]string{"pressure/memory": pressure}, HostMemory{}, true},
	} {
		got, err := readHostMemory(fakeProc(t, c.files))
		if (err != nil) != c.fails || got != c.want {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	m, err := ReadHostMemory()
	if err != nil || m.Available == 0 || m.Total < m.Available || m.Some < 0 || m.Some > 100 || m.Full < 0 || m.Full > 100 {
		t.Errorf("this host: %+v, %v", m, err)
	}
}
