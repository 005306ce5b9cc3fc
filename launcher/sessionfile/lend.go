package sessionfile

import (
	"context"
	"fmt"
)

// Lend puts the saved cookies of a profile into a browser that is open only for a moment, or that
// is about to start, and keeps the files, so that the next session has them, whatever becomes of that
// browser. If the browser was open for a moment and closes in order, KeepOfWarm replaces the files by the
// cookies that it has then; if it has started, Drop removes them.
func (j Jar) Lend(ctx context.Context, browser Caller, profile string) error {
	var cookies []cookie
	for kind, path := range j.kept(profile) {
		some, err := j.read(path, kind, profile)
		if err != nil {
			return err
		}
		cookies = append(cookies, some...)
	}
	if len(cookies) == 0 {
		return nil
	}
	if err := browser.Call(ctx, "", "Storage.setCookies", map[string]any{"cookies": cookies}, nil); err != nil {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	return nil
}
