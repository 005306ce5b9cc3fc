package slots

import (
	"math"
	"testing"
)

func TestPlacesAndSpaceAreShown(t *testing.T) {
	h := newHost(t, Options{MaxBrowsers: 3, MinFreeDisk: 5 << 20})
	for name, want := range map[string]float64{"leasehold_browsers_limit": 3, "leasehold_browsers": 0, "leasehold_disk_min_free_bytes": 5 << 20} {
		if got := h.counted(name, ""); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for _, name := range []string{"leasehold_disk_free_bytes", "leasehold_data_disk_free_bytes"} {
		if got := h.counted(name, ""); !(got > 0) {
			t.Errorf("%s is %v", name, got)
		}
	}
	if got := newHost(t, Options{}).counted("leasehold_browsers_limit", ""); !math.IsInf(got, 1) {
		t.Errorf("without a limit: %v, want +Inf", got)
	}
}
