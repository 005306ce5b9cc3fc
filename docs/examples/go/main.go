// Command go is a worker with chromedp: go run ./docs/examples/go. It imports nothing of
// this project; in a module of your own it needs github.com/chromedp/chromedp v0.22.1.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"
)

func main() {
	if err := work(); err != nil {
		log.Fatal(err)
	}
}

func work() error {
	sidecar := strings.Replace(cmp.Or(os.Getenv("LEASEHOLD_URL"), "http://127.0.0.1:9333"), "http", "ws", 1)
	shop := "http://127.0.0.1:" + cmp.Or(os.Getenv("PORT"), "8080") + "/"

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	allocator, stop := remote.NewAllocator(ctx, sidecar+"/devtools/browser/shop_018?worker=worker-9&task=task_105&create=true&wait=60s",
		remote.WithDialTimeout(0)) // ctx says how long; else it would be ten seconds, less than the wait
	defer stop()
	// Once the connection is closed, chromedp sends to it that it leaves the tab, and logs that it cannot.
	var released atomic.Bool
	tab, leave := chromedp.NewContext(allocator, chromedp.WithErrorf(func(format string, args ...any) {
		if !released.Load() {
			log.Printf("chromedp: "+format, args...)
		}
	}))
	defer leave()

	if err := chromedp.Do(tab, chromedp.Navigate(shop)); err != nil {
		return err
	}
	// The domain Lease is not in chromedp's own protocol: it is called by name.
	step := map[string]any{"name": "look_at_the_shop"}
	if err := chromedp.FromContext(tab).Target.Call(tab, "Lease.step", step, nil); err != nil {
		return err
	}
	visits, err := chromedp.Run(tab, chromedp.Text(chromedp.CSS("#visits")))
	if err != nil {
		return err
	}
	fmt.Println("chromedp:", visits)
	// The end is asked for, and answered. Cancelling the context would close the connection in
	// the background: a program that ends meanwhile counts as a lost worker. The connection is
	// closed right behind the answer; that ends the context of the tab, but not ctx. Before
	// that leave would write to it.
	released.Store(true)
	outcome := map[string]any{"outcome": "succeeded"}
	if err := chromedp.FromContext(tab).Browser.Call(ctx, "Lease.release", outcome, nil); err != nil {
		return err
	}
	select {
	case <-tab.Done():
	case <-ctx.Done():
	}
	return nil
}
