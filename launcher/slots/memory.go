package slots

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// memory is one reading of what the host has left of it.
type memory struct {
	// available is what can be had without swapping, in bytes; zero: not known.
	available uint64
	// some and full are the shares, in percent of the last ten seconds, in which
	// some task, or every one, waited for memory; zero where the kernel does not
	// tell.
	some, full float64
}

// From these shares on the host is short of memory, whatever is available: it
// swaps, or throws away what it needs again. A single program that starts makes
// less.
const (
	pressureSome = 20.0
	pressureFull = 10.0
)

// short says why there is too little memory for browsers that nobody uses, or is
// empty. Least is how many bytes are to stay available; zero: no bound at all.
func (m memory) short(least uint64) string {
	switch {
	case least == 0:
		return ""
	case m.available > 0 && m.available < least:
		return fmt.Sprintf("%s of memory are available, less than %s (--keep-warm-min-memory)", humanize.IBytes(m.available), humanize.IBytes(least))
	case m.some >= pressureSome:
		return fmt.Sprintf("tasks waited for memory in %.0f%% of the last ten seconds", m.some)
	case m.full >= pressureFull:
		return fmt.Sprintf("every task waited for memory in %.0f%% of the last ten seconds", m.full)
	}
	return ""
}

// parseMemory reads /proc/meminfo and /proc/pressure/memory; what is not in them
// is not known.
func parseMemory(info, pressure []byte) memory {
	var m memory
	for lines := bufio.NewScanner(bytes.NewReader(info)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == "MemAvailable:" && fields[2] == "kB" {
			if kib, err := strconv.ParseUint(fields[1], 10, 54); err == nil {
				m.available = kib << 10
			}
		}
	}
	for lines := bufio.NewScanner(bytes.NewReader(pressure)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		value, ok := strings.CutPrefix(fields[1], "avg10=")
		share, err := strconv.ParseFloat(value, 64)
		switch {
		case !ok || err != nil:
		case fields[0] == "some":
			m.some = share
		case fields[0] == "full":
			m.full = share
		}
	}
	return m
}

// readMemory is the host's, now.
func readMemory() (memory, error) {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return memory{}, fmt.Errorf("memory of the host: %w", err)
	}
	// Not every kernel has it, and some have it switched off.
	pressure, _ := os.ReadFile("/proc/pressure/memory")
	m := parseMemory(info, pressure)
	if m.available == 0 {
		return m, errors.New("memory of the host: /proc/meminfo has no MemAvailable")
	}
	return m, nil
}
