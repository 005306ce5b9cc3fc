package launcher

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"leasehold/launcher/chrome"
)

// leaseDomain describes the Lease domain as Chrome describes its own.
//
//go:embed lease_domain.json
var leaseDomain []byte

// protocolTimeout bounds how long Chrome may take to describe its protocol.
const protocolTimeout = 60 * time.Second

// protocolAsk is one question to Chrome for a description of its protocol.
type protocolAsk struct {
	done chan struct{}
	raw  json.RawMessage // valid after done
	err  error           // valid after done
}

// Protocol returns Chrome's description of CDP with the Lease domain in it. The first call asks
// Chrome, in the background; the answer is kept for all later ones.
func (l *Launcher) Protocol(ctx context.Context, _ string) (json.RawMessage, error) {
	l.mu.Lock()
	ask := l.protocol
	if ask == nil {
		ask = &protocolAsk{done: make(chan struct{})}
		l.protocol = ask
		l.work.Go(func() {
			defer close(ask.done)
			if ask.raw, ask.err = l.describe(); ask.err != nil {
				l.mu.Lock()
				l.protocol = nil
				l.mu.Unlock()
			}
		})
	}
	l.mu.Unlock()
	select {
	case <-ask.done:
		return ask.raw, ask.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *Launcher) describe() (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(l.ctx, protocolTimeout)
	defer cancel()
	raw, err := chrome.Describe(ctx, l.o.Chrome, filepath.Join(l.o.DataDir, "tmp"), l.o.Confinement, l.o.User)
	if err != nil {
		return nil, fmt.Errorf("protocol description: %w", err)
	}
	var description struct {
		Version json.RawMessage   `json:"version"`
		Domains []json.RawMessage `json:"domains"`
	}
	if err := json.Unmarshal(raw, &description); err != nil {
		return nil, fmt.Errorf("protocol description: %w", err)
	}
	description.Domains = append(description.Domains, leaseDomain)
	if raw, err = json.Marshal(description); err != nil {
		return nil, fmt.Errorf("protocol description: %w", err)
	}
	return raw, nil
}
