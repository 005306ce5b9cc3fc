// A snippet that makes an allocator of chromedp in "allocator".
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// the snippet
	defer stop()
	tab, leave := chromedp.NewContext(allocator)
	defer leave()
	two, err := chromedp.Run(tab, chromedp.Evaluate[int]("1 + 1"))
	if err != nil {
		panic(err)
	}
	fmt.Println("1 + 1 =", two)
	outcome := map[string]any{"outcome": "succeeded"}
	if err := chromedp.FromContext(tab).Browser.Call(ctx, "Lease.release", outcome, nil); err != nil {
		panic(err)
	}
	select {
	case <-tab.Done():
	case <-ctx.Done():
	}
}
