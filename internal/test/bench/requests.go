package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"leasehold/launcher/chrome"
)

// manyRequests is how many requests the page makes, besides the one for itself.
const manyRequests = 500

// requestsPage loads images and scripts and calls fetch. Its window.all is resolved
// when everything is there.
const requestsPage = `<!doctype html><title>requests</title><body><script>
const waits = [new Promise((done) => addEventListener('load', done))];
for (let i = 0; i < %d; i++) {
  if (i %% 5 == 0) waits.push(fetch('/fetch?' + i).then((r) => r.text()));
  else {
    const e = document.createElement(i %% 5 == 1 ? 'script' : 'img');
    waits.push(new Promise((done, failed) => { e.onload = done; e.onerror = failed; }));
    e.src = (i %% 5 == 1 ? '/script?' : '/image?') + i;
    document.body.append(e);
  }
}
window.all = Promise.all(waits).then((all) => location.search + ' ' + (all.length - 1));
</script>`

// pixel is an image of one pixel.
var pixel = []byte("GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00!\xf9\x04\x00\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;")

func serveRequests(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	switch r.URL.Path {
	case "/image":
		h.Set("Content-Type", "image/gif")
		_, _ = w.Write(pixel)
	case "/script":
		h.Set("Content-Type", "text/javascript")
		_, _ = w.Write([]byte("window.n = (window.n || 0) + 1;"))
	case "/fetch":
		h.Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"ok":true}`))
	default:
		h.Set("Content-Type", "text/html")
		fmt.Fprintf(w, requestsPage, manyRequests)
	}
}

// load loads the page with many requests, and returns how long that took in ms.
func (s *side) load() (float64, error) {
	s.loads++
	want := fmt.Sprintf("?%d %d", s.loads, manyRequests)
	begun := time.Now()
	if _, err := s.client.call(s.session, "Page.navigate", fmt.Sprintf(`{"url":"%s?%d"}`, s.pages, s.loads)); err != nil {
		return 0, err
	}
	// For a moment the previous document may still answer.
	for time.Since(begun) < answerTimeout {
		msg, err := s.client.call(s.session, "Runtime.evaluate", `{"expression":"window.all","awaitPromise":true,"returnByValue":true}`)
		if err != nil && !strings.Contains(err.Error(), "refused") {
			return 0, err
		}
		if bytes.Contains(msg, []byte(want)) {
			return ms(begun), nil
		}
	}
	return 0, fmt.Errorf("the page did not make its %d requests", manyRequests)
}

type loadMeasure struct {
	name   string
	goal   float64 // for the ratio; zero for none
	sample func(*side) (float64, error)
}

// loadMeasures compare the load of a page with many requests in a browser that nobody
// observes and in the launcher's: for a worker that does not enable Chrome's network
// events, and for Playwright, which always does.
var loadMeasures = []loadMeasure{
	{"500 requests (plain client)", loadGoal, (*side).load},
	{"500 requests (Playwright)", loadGoal, func(s *side) (float64, error) { return s.script.once() }},
}

const loadGoal = 1.05

// observed measures what a page's requests cost, compared with a browser that nobody
// observes: the same Chrome with the same arguments, on a port. The rounds of the two
// alternate. Besides the time it measures the CPU time of each browser's processes.
func (r *rig) observed(o options) (results []result, err error) {
	if !slices.ContainsFunc(loadMeasures, func(m loadMeasure) bool { return o.wants(m.name) }) {
		return nil, nil
	}
	a, url, err := r.sidecar.startAlone(o.chrome, profile)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.stop()) }()
	pages, web, err := serve(serveRequests)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, web.Close()) }()
	sides := [2]*side{{url: url, pages: pages}, {url: r.launcher.url, pages: pages}}
	dirs := [2]string{a.dir, r.sidecar.profileDir(profile)}
	return r.compareLoads(o, loadMeasures, sides, dirs)
}

// compareLoads takes load measures on two sides in turn, whose browsers are those on dirs.
// It opens what it needs there, and closes it. Of the launcher's own process it measures
// what the second side costs.
func (r *rig) compareLoads(o options, measures []loadMeasure, sides [2]*side, dirs [2]string) (results []result, err error) {
	for _, s := range sides {
		if s.client, err = dial(s.url); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.client.close()) }()
		if s.session, err = s.client.page(); err != nil {
			return nil, err
		}
	}
	for _, m := range measures {
		if !o.wants(m.name) {
			continue
		}
		if strings.Contains(m.name, "Playwright") {
			for _, s := range sides {
				if s.script, err = newPlaywright(o.clients, s.url, serveRequests, "requests"); err != nil {
					return nil, err
				}
				defer func() { err = errors.Join(err, s.script.stop()) }()
			}
		}
		of, err := r.compareLoad(o, m, sides, dirs)
		if err != nil {
			return nil, err
		}
		results = append(results, of...)
	}
	return results, nil
}

func (r *rig) compareLoad(o options, m loadMeasure, sides [2]*side, dirs [2]string) ([]result, error) {
	var took, cpu [2][]float64
	var ratios, cpuRatios, own, slept []float64
	for round := range o.rounds + 1 {
		var t, c [2]float64
		for k := range 2 {
			which := (k + round) % 2
			before, err := treeCPU(dirs[which])
			if err != nil {
				return nil, err
			}
			cpu, sleeps, err := r.spent()
			if err != nil {
				return nil, err
			}
			if t[which], err = m.sample(sides[which]); err != nil {
				return nil, err
			}
			cpuAfter, sleepsAfter, err := r.spent()
			if err != nil {
				return nil, err
			}
			if which == 1 {
				own, slept = append(own, (cpuAfter-cpu).Seconds()*1e3), append(slept, sleepsAfter-sleeps)
			}
			after, err := treeCPU(dirs[which])
			if err != nil {
				return nil, err
			}
			c[which] = after - before
		}
		if round == 0 { // it only warms up
			continue
		}
		for which := range 2 {
			took[which], cpu[which] = append(took[which], t[which]), append(cpu[which], c[which])
		}
		ratios, cpuRatios = append(ratios, t[1]/t[0]), append(cpuRatios, c[1]/c[0])
	}
	return []result{
		{
			Name: m.name, Unit: "ms", Goal: m.goal, Port: median(took[0]), Value: median(took[1]), Ratio: median(ratios),
			Low: slices.Min(ratios), High: slices.Max(ratios), Best: slices.Min(took[1]) / slices.Min(took[0]),
		},
		{
			Name: m.name + ", Chrome's CPU", Unit: "ms", Port: median(cpu[0]), Value: median(cpu[1]), Ratio: median(cpuRatios),
			Low: slices.Min(cpuRatios), High: slices.Max(cpuRatios), Best: slices.Min(cpu[1]) / slices.Min(cpu[0]),
		},
		{Name: m.name + ", launcher's CPU", Unit: "ms", Value: median(own)},
		{Name: m.name + ", launcher's wake-ups", Value: median(slept)},
		{Name: m.name + ", more per request", Unit: "us", Value: (median(took[1]) - median(took[0])) * 1e3 / manyRequests},
		{Name: m.name + ", Chrome's CPU more per request", Unit: "us", Value: (median(cpu[1]) - median(cpu[0])) * 1e3 / manyRequests},
	}, nil
}

// alone is the launcher's Chrome with the same arguments, on a port of its own, without
// an observer.
type alone struct {
	dir string
	cmd *exec.Cmd
}

// startAlone starts it with the arguments of the profile's browser.
func (s *sidecar) startAlone(binary, profile string) (_ *alone, url string, err error) {
	args, err := s.browserArgs(profile)
	if err != nil {
		return nil, "", err
	}
	a := &alone{}
	if a.dir, err = os.MkdirTemp("", "leasehold-bench-alone-"); err != nil {
		return nil, "", err
	}
	args = slices.DeleteFunc(args, func(arg string) bool {
		return strings.HasPrefix(arg, "--user-data-dir=") || strings.HasPrefix(arg, "--remote-debugging-port=")
	})
	a.cmd = exec.Command(binary, append(chrome.OnPort(args), "--user-data-dir="+a.dir)...)
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := a.cmd.Start(); err != nil {
		return nil, "", errors.Join(err, os.RemoveAll(a.dir))
	}
	url, err = portIn(a.dir)
	if err != nil {
		err = errors.Join(err, a.stop())
	}
	return a, url, err
}

func (a *alone) stop() error {
	if a == nil {
		return nil
	}
	_ = a.cmd.Process.Signal(os.Interrupt) // its exit status does not matter
	_ = a.cmd.Wait()
	// Its child processes may still write for a moment.
	var err error
	for range 50 {
		if err = os.RemoveAll(a.dir); err == nil || !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// spent returns the CPU time of the launcher's process, and how often it slept.
func (r *rig) spent() (time.Duration, float64, error) {
	cpu, err := r.sidecar.cpu()
	if err != nil {
		return 0, 0, err
	}
	slept, err := r.sidecar.sleeps()
	return cpu, slept, err
}

// browserArgs returns the arguments of the profile's running browser.
func (s *sidecar) browserArgs(profile string) ([]string, error) {
	dir := "--user-data-dir=" + s.profileDir(profile)
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, path := range lines {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		args := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
		if slices.Contains(args, dir) && slices.Contains(args, "--remote-debugging-pipe") {
			return args[1:], nil
		}
	}
	return nil, fmt.Errorf("no browser runs on %s", dir)
}

// treeCPU is the CPU time that a browser's processes have used, in ms. It finds them by
// the profile directory in their arguments.
func treeCPU(dir string) (float64, error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	var ticks float64
	for _, path := range lines {
		b, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(b, []byte("--user-data-dir="+dir)) {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		for _, field := range fields[11:13] {
			n, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", path, err)
			}
			ticks += n
		}
	}
	return ticks * 10, nil // USER_HZ is 100 wherever Linux runs Chrome
}

// serve starts a web server for pages, and returns its URL.
func serve(handler http.HandlerFunc) (url string, web *http.Server, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	web = &http.Server{Handler: handler, ReadHeaderTimeout: answerTimeout}
	go func() { _ = web.Serve(l) }() // it ends when the server is closed
	return "http://" + l.Addr().String() + "/", web, nil
}
