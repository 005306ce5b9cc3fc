package sessionfile

import (
	"context"
	"fmt"
)

// Kept returns the parameters of the Storage.setCookies that puts a profile's saved cookies into a browser, or nil if
// there are none.
func (j Jar) Kept(profile string) (params map[string]any, err error) {
	var cookies []cookie
	for kind, path := range j.kept(profile) {
		some, err := j.read(path, kind, profile)
		if err != nil {
			return nil, err
		}
		cookies = append(cookies, some...)
	}
	if len(cookies) == 0 {
		return nil, nil
	}
	return map[string]any{"cookies": cookies}, nil
}

// Lend puts the saved cookies of a profile into a browser that is open only for a moment, and keeps the files, so that
// the next session has them, whatever becomes of that browser. If it closes in order, KeepOfWarm replaces the files by
// the cookies that it has then.
func (j Jar) Lend(ctx context.Context, browser Caller, profile string) error {
	cookies, err := j.Kept(profile)
	if err != nil || cookies == nil {
		return err
	}
	if err := browser.Call(ctx, "", "Storage.setCookies", cookies, nil); err != nil {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	return nil
}
