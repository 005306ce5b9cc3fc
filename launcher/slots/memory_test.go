package slots

import (
	"testing"

	"leasehold/internal/procfs"
)

func TestMemoryIsShort(t *testing.T) {
	const gib = 1 << 30
	for _, tt := range []struct {
		name  string
		m     procfs.HostMemory
		least uint64
		short bool
	}{
		{"plenty", procfs.HostMemory{Available: 8 * gib}, gib, false},
		{"just enough", procfs.HostMemory{Available: gib}, gib, false},
		{"a byte too little", procfs.HostMemory{Available: gib - 1}, gib, true},
		{"some wait", procfs.HostMemory{Available: 8 * gib, Some: pressureSome}, gib, true},
		{"some wait a little", procfs.HostMemory{Available: 8 * gib, Some: pressureSome - 0.01, Full: pressureFull - 0.01}, gib, false},
		{"all wait", procfs.HostMemory{Available: 8 * gib, Some: 11, Full: pressureFull}, gib, true},
		{"not watched", procfs.HostMemory{Available: 1, Some: 99, Full: 99}, 0, false},
	} {
		if why := shortage(tt.m, tt.least); (why != "") != tt.short {
			t.Errorf("%s: %q, want short: %v", tt.name, why, tt.short)
		}
	}
}
