package launcher

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// TestABrowserThatHangsIsNotWaitedFor: chromedriver does not connect where the revision is missing,
// which each browser can tell.
func TestABrowserThatHangsIsNotWaitedFor(t *testing.T) {
	ended := make(chan struct{}, 2)
	hangs := func(ctx context.Context) (string, error) {
		<-ctx.Done()
		ended <- struct{}{}
		return "", ctx.Err()
	}
	broken := errors.New("the browser has ended")
	fails := func(context.Context) (string, error) { return "", broken }
	answers := func(context.Context) (string, error) { return "@60", nil }
	type ask = func(context.Context) (string, error)
	for _, asks := range [][]ask{{hangs, answers}, {answers, hangs}, {hangs, fails, answers, hangs}} {
		got, err := firstAnswer(t.Context(), asks)
		if got != "@60" || err != nil {
			t.Errorf("of %d browsers: %q, %v; want @60", len(asks), got, err)
		}
		if hanging := len(asks) / 2; len(ended) != hanging {
			t.Errorf("of %d that hang %d have ended", hanging, len(ended))
		}
		for len(ended) > 0 {
			<-ended
		}
	}
	if got, err := firstAnswer(t.Context(), []ask{fails, fails}); got != "" || !errors.Is(err, broken) {
		t.Errorf("of none that answers: %q, %v; want its error", got, err)
	}
	if got, err := firstAnswer(t.Context(), []ask(nil)); got != "" || err != nil {
		t.Errorf("of no browser: %q, %v", got, fmt.Sprint(err))
	}
}
