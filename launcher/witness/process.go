package witness

import (
	"context"

	"leasehold/evidence"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/recovery"
	"leasehold/launcher/recovery/table"
)

// maxOutput is how many bytes of what Chrome printed go into a bundle.
const maxOutput = 64 << 10

// process is the witness of the browser as a program: its state, and what it printed. Whether it is
// gone, the directory's witness tells.
type process struct{ browser *browser.Browser } // nil: there is none

func (p process) Add(ctx context.Context, c recovery.Capture, to recovery.Parts) {
	if p.browser == nil {
		return
	}
	to.PutJSON("browser.json", evidence.KindBrowser, p.browser.State(ctx, c.Record.AcquiredAt), nil)
	to.Put("chrome-output.txt", "output", "text/plain", []byte(p.browser.OutputTail(maxOutput)), nil)
}

func (process) Facts(context.Context, recovery.Closed, *api.Inspection) []table.Fact { return nil }
