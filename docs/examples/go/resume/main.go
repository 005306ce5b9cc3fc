// Command resume is a task of three pages that goes on from its last checkpoint. The first time it
// is killed behind the second page; started again, it reads the third: go run ./docs/examples/go/resume
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"
)

func main() {
	if err := work(); err != nil {
		log.Fatal(err)
	}
}

// progress is what the task needs to go on. It is kept with each checkpoint.
type progress struct {
	Next int `json:"next"`
}

func work() error {
	sidecar := strings.Replace(cmp.Or(os.Getenv("LEASEHOLD_URL"), "http://127.0.0.1:9333"), "http", "ws", 1)
	shop := "http://127.0.0.1:" + cmp.Or(os.Getenv("PORT"), "8080") + "/"

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	allocator, stop := remote.NewAllocator(ctx, sidecar+"/devtools/browser/shop_020?worker=worker-9&task=task_107&create=true&wait=60s&resumable=true",
		remote.WithDialTimeout(0)) // ctx says how long
	defer stop()
	// As in ../main.go: what chromedp logs of a connection that the release closed is left out.
	var released atomic.Bool
	tab, leave := chromedp.NewContext(allocator, chromedp.WithErrorf(func(format string, args ...any) {
		if !released.Load() {
			log.Printf("chromedp: "+format, args...)
		}
	}))
	defer leave()
	if err := chromedp.Do(tab); err != nil { // opens the tab
		return err
	}
	page := chromedp.FromContext(tab).Target

	var lease struct {
		Resume *struct {
			Checkpoint string   `json:"checkpoint"`
			Data       progress `json:"data"`
		} `json:"resume"`
	}
	if err := page.Call(tab, "Lease.getLease", nil, &lease); err != nil {
		return err
	}
	at := progress{Next: 1}
	if lease.Resume != nil {
		at = lease.Resume.Data
	}
	for at.Next <= 3 {
		url := fmt.Sprintf("%slist?page=%d", shop, at.Next)
		// What chromedp itself still asks of the page would be refused, and logged, at the release.
		if err := chromedp.Do(tab, chromedp.Navigate(url), chromedp.WaitVisible(chromedp.CSS("#visits"))); err != nil {
			return err
		}
		fmt.Println("read page", at.Next)
		name := fmt.Sprintf("page_%d", at.Next)
		at.Next++
		if err := page.Call(tab, "Lease.checkpoint", map[string]any{"name": name, "data": at}, nil); err != nil {
			return err
		}
		if at.Next == 3 && lease.Resume == nil {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	fmt.Println("done")
	// As in ../main.go: the end is asked for, and answered.
	released.Store(true)
	if err := chromedp.FromContext(tab).Browser.Call(ctx, "Lease.release", map[string]any{"outcome": "succeeded"}, nil); err != nil {
		return err
	}
	select {
	case <-tab.Done():
	case <-ctx.Done():
	}
	return nil
}
