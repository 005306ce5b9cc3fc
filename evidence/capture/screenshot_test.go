package capture_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"leasehold/evidence/capture"
)

// mute is a browser that never answers.
type mute struct{}

func (mute) Call(ctx context.Context, _, _ string, _, _ any) error {
	<-ctx.Done()
	return fmt.Errorf("no answer: %w", ctx.Err())
}

// painter is a browser that answers with an image of so many bytes.
type painter struct {
	bytes int
	// unpainted says that the page has drawn nothing yet: it would owe an image.
	unpainted bool
}

func (p painter) Call(_ context.Context, _, method string, _, result any) error {
	if method == "Runtime.evaluate" {
		return json.Unmarshal(fmt.Appendf(nil, `{"result":{"value":%t}}`, p.unpainted), result)
	}
	if p.unpainted {
		panic("asked for an image")
	}
	result.(*struct {
		Data []byte `json:"data"`
	}).Data = make([]byte, p.bytes)
	return nil
}

func TestTakePictureIsBounded(t *testing.T) {
	page := capture.Page{SessionID: "s", Type: "page", URL: "http://shop.example/"}
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if image, missing := capture.TakePicture(t.Context(), mute{}, page); image != nil || !strings.Contains(missing, "drew nothing") || time.Since(begun) > 2*time.Second {
			t.Errorf("%d bytes, %q after %v", len(image), missing, time.Since(begun))
		}
	})
	if image, missing := capture.TakePicture(t.Context(), painter{bytes: 2 << 20}, page); image != nil || !strings.Contains(missing, "bytes") {
		t.Errorf("too large: %d bytes, %q", len(image), missing)
	}
	if image, missing := capture.TakePicture(t.Context(), painter{bytes: 100}, page); len(image) != 100 || missing != "" {
		t.Errorf("%d bytes, %q", len(image), missing)
	}
	if _, missing := capture.TakePicture(t.Context(), painter{unpainted: true}, page); !strings.Contains(missing, "drawn nothing yet") {
		t.Errorf("unpainted: %q", missing)
	}
	page.Dialog = "alert: x"
	if _, missing := capture.TakePicture(t.Context(), painter{bytes: 100}, page); !strings.Contains(missing, "dialog") {
		t.Errorf("a dialog: %q", missing)
	}
}

// TestNoPictureOfAPageInNoWindow is asked for: it would stay outstanding, and the browser crashes when the
// page closes then.
func TestNoPictureOfAPageInNoWindow(t *testing.T) {
	page := capture.Page{TargetID: "H", SessionID: "S", Type: capture.TypeOther, URL: "https://shop.example/"}
	if image, missing := capture.TakePicture(t.Context(), painter{bytes: 100}, page); image != nil || !strings.Contains(missing, "in no window") {
		t.Errorf("%d bytes, %q", len(image), missing)
	}
}
