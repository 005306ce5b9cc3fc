package capture

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errEmptyImage is a screenshot without content.
var errEmptyImage = errors.New("the image is empty")

// errInNoWindow is for a page of TypeOther. A screenshot of it would stay outstanding.
var errInNoWindow = errors.New("the page is in no window, where Chrome draws nothing")

var errUnpainted = errors.New("the page is being loaded, and has drawn nothing yet")

// unpainted is an expression that tells whether a page is being loaded and has drawn
// nothing yet.
const unpainted = `!performance.getEntriesByType("paint").length && document.readyState != "complete"`

func says(ctx context.Context, c Caller, session, expression string) (bool, error) {
	var r struct {
		Result struct {
			Value any `json:"value"`
		} `json:"result"`
	}
	err := c.Call(ctx, session, "Runtime.evaluate", map[string]any{"expression": expression, "silent": true}, &r)
	value, _ := r.Result.Value.(bool)
	return value, err
}

// These say how long, and at which intervals, Chrome is asked again for a screenshot that it
// refuses: until a tab has drawn its first frame, which takes seconds on a busy host, and for a
// moment while a dialog opens or a frame is swapped. A page that is being loaded may take for
// ever.
const (
	refusalTimeout  = 4 * time.Second
	loadingTimeout  = time.Second
	screenshotPause = 100 * time.Millisecond
)

// again tells whether a page that gave no screenshot is asked again, this long after it was
// first asked.
func again(err error, after time.Duration) bool {
	switch {
	case errors.Is(err, errInNoWindow):
		return false
	case errors.Is(err, errUnpainted):
		return after < loadingTimeout
	}
	return err != nil && !errors.Is(err, context.DeadlineExceeded) && after < refusalTimeout
}

// screenshot returns a JPEG of what the page shows, or the reason why there is none. If Chrome
// refuses to draw the page, it is asked again. If the page is too busy to draw, its running
// script is terminated, and it is asked once more. refused says that the page answers, but
// Chrome gives no image of it.
func (p pageCapture) screenshot(ctx context.Context) (image []byte, missing string, refused bool) {
	begun := time.Now()
	image, err := p.draw(ctx)
	for ctx.Err() == nil && again(err, time.Since(begun)) {
		time.Sleep(screenshotPause)
		image, err = p.draw(ctx)
	}
	if err == nil {
		return image, "", false
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		return nil, "Chrome gave no screenshot: " + err.Error(), !errors.Is(err, errUnpainted)
	}
	missing = fmt.Sprintf("the page drew nothing within %v", p.limits.Part)
	if p.limits.LeaveBusy {
		return nil, missing, false
	}
	if err := p.terminate(ctx); err != nil {
		return nil, missing + ", and its script could not be terminated: " + err.Error(), false
	}
	if image, err = p.draw(ctx); err != nil {
		return nil, missing + ", nor after its script was terminated: " + err.Error(), false
	}
	return image, "", false
}

// terminate ends the running script of a page. A script that waits for an answer of the network, as
// one that reads document.cookie does, cannot be terminated until it is freed.
func (p pageCapture) terminate(ctx context.Context) error {
	within := p.limits.Part
	if p.limits.Free != nil {
		within = answerTime
	}
	err := Patiently(ctx, within, func(ctx context.Context) error {
		return p.caller.Call(ctx, p.page.SessionID, "Runtime.terminateExecution", nil, nil)
	})
	if p.limits.Free != nil && errors.Is(err, context.DeadlineExceeded) {
		return p.limits.Free(ctx)
	}
	return err
}

func (p pageCapture) draw(ctx context.Context) (image []byte, err error) {
	err = Patiently(ctx, p.limits.Part, func(ctx context.Context) (err error) {
		image, err = captureScreenshot(ctx, p.caller, p.page, map[string]any{"format": "jpeg", "quality": 70})
		return err
	})
	return image, err
}

// captureScreenshot asks Chrome for an image of what the page shows. The parameters must have
// neither clip nor captureBeyondViewport, because both fire resize in the page. The page is
// first asked whether it can draw: if a renderer ends while a screenshot of it is outstanding,
// the whole browser crashes (Chromium 156).
func captureScreenshot(ctx context.Context, c Caller, page Page, params map[string]any) ([]byte, error) {
	// Chrome delays questions to a page that is navigating to another document, but draws the
	// document that is still there.
	if page.Type == TypeOther {
		return nil, errInNoWindow
	}
	if page.URL == "" { // a tab that waits for its first document never draws
		return nil, errUnpainted
	}
	if !page.Leaving {
		blank, err := says(ctx, c, page.SessionID, unpainted)
		switch {
		case errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
			return nil, err
		case blank:
			return nil, errUnpainted
		}
	}
	var r struct {
		Data []byte `json:"data"`
	}
	if err := c.Call(ctx, page.SessionID, "Page.captureScreenshot", params, &r); err != nil {
		return nil, err
	}
	if len(r.Data) == 0 {
		return nil, errEmptyImage
	}
	return r.Data, nil
}

// Bounds of one picture.
const (
	pictureTimeout  = 1500 * time.Millisecond
	maxPictureBytes = 1 << 20
)

// TakePicture returns a JPEG of moderate quality of what a page of a living session shows, or
// the reason why there is none. The page cannot notice it, and whoever is using the page is not
// disturbed. It tries only once: if the page does not draw in time, or cannot, the picture is
// missing.
func TakePicture(ctx context.Context, c Caller, page Page) (image []byte, missing string) {
	if reason := obstacle(page, Limits{}); reason != "" {
		return nil, reason
	}
	ctx, cancel := context.WithTimeout(ctx, pictureTimeout)
	defer cancel()
	image, err := captureScreenshot(ctx, c, page, map[string]any{"format": "jpeg", "quality": 50, "optimizeForSpeed": true})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Sprintf("the page drew nothing within %v", pictureTimeout)
	case errors.Is(err, errEmptyImage) || errors.Is(err, errUnpainted):
		return nil, err.Error()
	case err != nil:
		return nil, "Chrome gave no screenshot: " + err.Error()
	case len(image) > maxPictureBytes:
		return nil, fmt.Sprintf("the image has %d bytes, more than %d", len(image), maxPictureBytes)
	}
	return image, ""
}
