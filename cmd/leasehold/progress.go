package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"leasehold/evidence"
)

// progressEvery is the least time between two updates of the line.
const progressEvery = 200 * time.Millisecond

// progress tells a person at a terminal how far long work has come, in one line that is
// overwritten. If the standard error is not a terminal it says nothing. Its methods may be
// called concurrently.
type progress struct {
	w io.Writer // nil: not a terminal

	mu    sync.Mutex
	bytes uint64
	parts int
	shown time.Time
	wide  int // length of the line that is shown
}

// progress is for one piece of work; its method end has to be called.
func (a *app) progress() *progress {
	if !isTerminal(a.stderr) {
		return &progress{}
	}
	return &progress{w: a.stderr}
}

// isTerminal tells whether a person reads, or types, at what the program writes to or reads.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), readTerminal)
	return err == nil && os.Getenv("TERM") != "dumb"
}

func (p *progress) read(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes += uint64(n)
	p.parts++
	if p.w == nil || time.Since(p.shown) < progressEvery {
		return
	}
	p.shown = time.Now()
	p.show(fmt.Sprintf("read %d files, %s", p.parts, humanize.IBytes(p.bytes)))
}

// end removes the line.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wide > 0 {
		p.show("")
	}
}

// show overwrites the line. A failure to write it does not matter.
func (p *progress) show(line string) {
	fmt.Fprintf(p.w, "\r%-*s\r%s", p.wide, "", line)
	p.wide = len(line)
}

// of is a reader that counts what is read from it.
func (p *progress) of(r evidence.Reader) evidence.Reader { return countedReader{r, p} }

type countedReader struct {
	evidence.Reader
	p *progress
}

// Manifest implements evidence.Reader.
func (c countedReader) Manifest(ctx context.Context, evidenceID string) ([]byte, error) {
	b, err := c.Reader.Manifest(ctx, evidenceID)
	c.p.read(len(b))
	return b, err
}

// Part implements evidence.Reader.
func (c countedReader) Part(ctx context.Context, evidenceID, name string) ([]byte, error) {
	b, err := c.Reader.Part(ctx, evidenceID, name)
	c.p.read(len(b))
	return b, err
}
