package boottime

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The clock counts from the host's start, with the time that it slept, and does not follow the wall
// clock.
func TestNowCountsFromTheStart(t *testing.T) {
	before := Now()
	b, err := os.ReadFile("/proc/uptime") // in hundredths of a second, rounded down
	after := Now()
	if err != nil {
		t.Fatal(err)
	}
	seconds, _, _ := strings.Cut(string(b), " ")
	up, err := strconv.ParseFloat(seconds, 64)
	kernel := Instant(up * float64(time.Second))
	if err != nil || kernel < before.Add(-20*time.Millisecond) || kernel > after {
		t.Errorf("the kernel says %v, %v; the clock read %v before and %v after", time.Duration(kernel), err, time.Duration(before), time.Duration(after))
	}
}
