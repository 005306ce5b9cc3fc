package capture

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Bounds of one picture.
const (
	pictureTime  = 1500 * time.Millisecond
	pictureBytes = 1 << 20
)

// TakePicture asks for what a page shows, as a JPEG of moderate quality, and for
// nothing that the page could tell or that would take it from who is using it. It
// is tried once: a page that does not draw in time, or cannot, is missing.
func TakePicture(ctx context.Context, c Caller, page Page) (image []byte, missing string) {
	if why := (shot{page: page}).obstacle(); why != "" {
		return nil, why
	}
	ctx, cancel := context.WithTimeout(ctx, pictureTime)
	defer cancel()
	var r struct {
		Data []byte `json:"data"`
	}
	params := map[string]any{"format": "jpeg", "quality": 50, "optimizeForSpeed": true}
	err := c.Call(ctx, page.SessionID, "Page.captureScreenshot", params, &r)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Sprintf("the page drew nothing within %v", pictureTime)
	case err != nil:
		return nil, "Chrome gave no screenshot: " + err.Error()
	case len(r.Data) == 0:
		return nil, "the image is empty"
	case len(r.Data) > pictureBytes:
		return nil, fmt.Sprintf("the image has %d bytes, more than %d", len(r.Data), pictureBytes)
	}
	return r.Data, ""
}
