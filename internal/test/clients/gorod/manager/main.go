// Command manager shows what the manager of go-rod does with a caller's own profile: whether
// a cookie is kept when a client leaves, and what a second client on the same directory is
// told. docs/lab/comparison.md has its output. It takes the browser from CHROME, and a shop of
// docs/examples at the port PORT.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/go-rod/rod"
	"github.com/go-rod/rod/lib/launcher"
)

var shop = "http://127.0.0.1:" + cmp.Or(os.Getenv("PORT"), "8080") + "/list"

// patience is how many seconds a browser may take to end.
const patience = 30

func main() {
	log.SetFlags(0)
	var err error
	if len(os.Args) > 3 {
		err = client(os.Args[1], os.Args[2], os.Args[3])
	} else {
		err = compare()
	}
	if err != nil {
		log.Fatal(err)
	}
}

// client is a client of the manager at url, in a process of its own: it leaves as a process
// does that ends.
func client(what, url, profile string) error {
	l, err := launcher.NewManaged(url)
	if err != nil {
		return err
	}
	c, err := l.Set("user-data-dir", profile).KeepUserDataDir().Client()
	if err != nil {
		return err
	}
	browser := rod.New().Client(c)
	if err := browser.Connect(); err != nil {
		return err
	}
	page := browser.MustPage(shop).MustWaitLoad()
	switch what {
	case "set":
		page.MustEval(`() => { document.cookie = 'basket=lamp; max-age=3600' }`)
	case "stay":
		fmt.Println("here")
		time.Sleep(time.Minute) // it is killed
	}
	fmt.Println(page.MustEval(`() => document.cookie`).Str())
	return nil
}

func compare() error {
	manager := launcher.NewManager()
	manager.Defaults = func(http.ResponseWriter, *http.Request) *launcher.Launcher {
		return launcher.New().Bin(cmp.Or(os.Getenv("CHROME"), "chromium")).NoSandbox(true)
	}
	manager.BeforeLaunch = func(*launcher.Launcher, http.ResponseWriter, *http.Request) {} // as --allow-all
	server := httptest.NewUnstartedServer(manager)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // its panics are what is shown
	server.Start()
	profile, err := os.MkdirTemp("", "rod-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(profile) }()
	ask := func(what string) (string, error) {
		out, err := exec.Command(os.Args[0], what, server.URL, profile).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	set, err := ask("set")
	if err != nil || !strings.Contains(set, "basket=lamp") {
		return fmt.Errorf("the first client: %s %w", set, err)
	}
	fmt.Println("a client sets a cookie and leaves:", cookie(set))
	got, err := ask("get")
	for range patience { // the manager is ending the first one's browser
		if err == nil {
			break
		}
		time.Sleep(time.Second)
		got, err = ask("get")
	}
	if err != nil {
		return fmt.Errorf("the second client: %s %w", got, err)
	}
	fmt.Println("the next one finds:", cookie(got))

	first, err := stay(server.URL, profile)
	for range patience {
		if err == nil {
			break
		}
		time.Sleep(time.Second)
		first, err = stay(server.URL, profile)
	}
	if err != nil {
		return fmt.Errorf("the client that stays: %w", err)
	}
	said, err := ask("get")
	if err == nil {
		said = "it is let in"
	}
	lines := strings.Split(said, "\n")
	fmt.Println("one that comes beside it is told:", lines[len(lines)-1])
	_ = first.Process.Kill()
	_ = first.Wait() // it was killed
	time.Sleep(time.Second)
	return nil
}

// stay starts a client that stays, and waits until it is there.
func stay(url, profile string) (*exec.Cmd, error) {
	cmd := exec.Command(os.Args[0], "stay", url, profile)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := fmt.Fscanln(out, new(string)); err != nil {
		return nil, errors.Join(err, cmd.Wait())
	}
	return cmd, nil
}

func cookie(all string) string {
	if strings.Contains(all, "basket=lamp") {
		return "basket=lamp"
	}
	return "no cookie"
}
