package browser

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"leasehold/launcher/chrome"
	"leasehold/launcher/profiledir"
)

// Discard kills the browser of a throwaway copy, which is in root under the id. It does not ask
// the browser to end, so its pages send nothing at their end. It returns when no process uses
// the copy, or an error.
func (b *Browser) Discard(root *profiledir.Root, id string, log zerolog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	begun := time.Now()
	if b.monitor != nil {
		b.monitor.Closing()
	}
	method, err := b.process.Close(ctx, nil, chrome.CloseTimeouts{AtOnce: true})
	if err == nil {
		err = b.awaitEnd(ctx)
	}
	return b.closed(root, id, method, begun, err, log)
}

// DiscardLeft kills the browser that a launcher left on a throwaway copy, if it lives. It
// returns when no process uses the copy.
func DiscardLeft(ctx context.Context, processes Processes, root *profiledir.Root, id string) error {
	running, ok, err := root.Left(id)
	if _, ok := errors.AsType[*profiledir.DamagedError](err); ok { // it may name any process
		ok, err = false, nil
	}
	if err != nil {
		return err
	}
	if ok && processes.Lives(identityOf(running)) {
		path, err := root.Path(id)
		if err == nil {
			err = KillLeft(ctx, processes, running, path)
		}
		if err != nil {
			return fmt.Errorf("copy %s: its browser: %w", id, err)
		}
	}
	err = root.WaitUnused(ctx, id)
	if errors.Is(err, profiledir.ErrNoProfile) {
		return nil
	}
	return err
}

func identityOf(r profiledir.Running) chrome.Identity {
	return chrome.Identity{PID: r.PID, StartTime: r.StartTime, BootID: r.BootID}
}

// KillLeft kills the browser that a launcher left on the directory at path, which need not be there
// any more. It does nothing if that browser has ended.
func KillLeft(ctx context.Context, processes Processes, r profiledir.Running, path string) error {
	p, err := processes.Attach(identityOf(r), chrome.AdoptOptions{ProfileDir: path, TempDir: r.TempDir, OutputFile: r.OutputFile, Group: r.Group})
	if _, other := errors.AsType[*chrome.NotSameError](err); other {
		return nil
	}
	if err == nil {
		_, err = p.Close(ctx, nil, chrome.CloseTimeouts{AtOnce: true})
	}
	return err
}
