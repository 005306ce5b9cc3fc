package slots

import (
	"fmt"

	"github.com/dustin/go-humanize"

	"leasehold/internal/procfs"
)

// From these shares on the host is short of memory, however much is available: it
// swaps, or drops pages that it needs again. The start of a single program stays below
// them.
const (
	pressureSome = 20.0
	pressureFull = 10.0
)

// shortage says why there is too little memory for browsers that nobody uses, or is
// empty. least is how many bytes have to stay available; with zero there is no bound at
// all.
func shortage(m procfs.HostMemory, least uint64) string {
	switch {
	case least == 0:
		return ""
	case m.Available < least:
		return fmt.Sprintf("%s of memory are available, less than %s (--keep-warm-min-memory)", humanize.IBytes(m.Available), humanize.IBytes(least))
	case m.Some >= pressureSome:
		return fmt.Sprintf("tasks waited for memory in %.0f%% of the last ten seconds", m.Some)
	case m.Full >= pressureFull:
		return fmt.Sprintf("every task waited for memory in %.0f%% of the last ten seconds", m.Full)
	}
	return ""
}
