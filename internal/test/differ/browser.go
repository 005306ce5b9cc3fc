package differ

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"leasehold/internal/test/sides"
)

// Browser is one Chromium that scripts are played on, on its own port or through a
// sidecar.
type Browser struct {
	host   string // host:port with Chrome's own layout of URLs
	socket string // the websocket URL of the browser
	// Downloads is a directory that the browser may write to.
	Downloads string
	home      string // the target that the browser began with
	control   *conn  // the harness's own connection
	stop      func() error
}

// begin connects to a browser that listens on host.
func begin(host, downloads string, stop func() error) (_ *Browser, err error) {
	b := &Browser{host: host, Downloads: downloads, stop: stop}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	resp, err := http.Get("http://" + host + "/json/version")
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	var version struct {
		WebSocketDebuggerURL string `json:"webSocketDebuggerUrl"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&version); err != nil {
		return nil, err
	}
	b.socket = version.WebSocketDebuggerURL
	if b.control, err = dial("control", b.socket); err != nil {
		return nil, err
	}
	targets, err := b.targets()
	if err != nil {
		return nil, err
	}
	for _, t := range targets {
		if t.Type == "page" {
			b.home = t.ID
		}
	}
	if b.home == "" {
		return nil, fmt.Errorf("the browser on %s has no tab: %v", host, targets)
	}
	return b, nil
}

// Close ends the browser.
func (b *Browser) Close() error {
	if b.control != nil {
		b.control.close()
	}
	return b.stop()
}

type target struct {
	ID   string `json:"targetId"`
	Type string `json:"type"`
	URL  string `json:"url"`
}

func (b *Browser) targets() ([]target, error) {
	raw, err := b.control.do("", "Target.getTargets", "")
	if err != nil {
		return nil, err
	}
	var r struct {
		Result struct {
			TargetInfos []target `json:"targetInfos"`
		} `json:"result"`
	}
	return r.Result.TargetInfos, json.Unmarshal(raw, &r)
}

// tab opens a page, waits until it is loaded, and returns its target id.
func (b *Browser) tab(url string) (string, error) {
	raw, err := b.control.do("", "Target.createTarget", fmt.Sprintf(`{"url":%q}`, url))
	if err != nil {
		return "", err
	}
	id, err := look(raw, "result.targetId")
	if err != nil {
		return "", err
	}
	if raw, err = b.control.do("", "Target.attachToTarget", fmt.Sprintf(`{"targetId":%q,"flatten":true}`, id)); err != nil {
		return "", err
	}
	session, err := look(raw, "result.sessionId")
	if err != nil {
		return "", err
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		raw, err := b.control.do(session, "Runtime.evaluate", `{"expression":"document.readyState+' '+location.href","returnByValue":true}`)
		if err == nil {
			state, err := look(raw, "result.result.value")
			if ready, at, _ := strings.Cut(state, " "); err == nil && ready == "complete" && (at != "about:blank" || url == at) {
				break
			}
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("%s was not loaded: %s", url, raw)
		}
	}
	_, err = b.control.do("", "Target.detachFromTarget", fmt.Sprintf(`{"sessionId":%q}`, session))
	return id, err
}

// Tidy removes what a script left, so that the next one finds the browser as it began.
func (b *Browser) Tidy(site *Site) error {
	raw, err := b.control.do("", "Target.getBrowserContexts", "")
	if err != nil {
		return err
	}
	var contexts struct {
		Result struct {
			IDs []string `json:"browserContextIds"`
		} `json:"result"`
	}
	if err := json.Unmarshal(raw, &contexts); err != nil {
		return err
	}
	for _, id := range contexts.Result.IDs {
		_, _ = b.control.do("", "Target.disposeBrowserContext", fmt.Sprintf(`{"browserContextId":%q}`, id)) // it may have ended with its connection
	}
	targets, err := b.targets()
	if err != nil {
		return err
	}
	for _, t := range targets {
		if t.Type == "page" && t.ID != b.home {
			_, _ = b.control.do("", "Target.closeTarget", fmt.Sprintf(`{"targetId":%q}`, t.ID)) // looked at below
		}
	}
	for _, origin := range []string{site.URL, site.Other} {
		if _, err := b.control.do("", "Storage.clearDataForOrigin", fmt.Sprintf(`{"origin":%q,"storageTypes":"all"}`, origin)); err != nil {
			if err := b.clearIn(origin); err != nil {
				return err
			}
		}
	}
	for deadline := time.Now().Add(patience / 2); ; time.Sleep(10 * time.Millisecond) {
		targets, err := b.targets()
		if err != nil {
			return err
		}
		if len(targets) == 1 && targets[0].ID == b.home && targets[0].URL == "about:blank" {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("these targets stayed: %v", targets)
		}
	}
}

// clearIn clears an origin's data by a session on the first tab: not every method is on
// the browser's own.
func (b *Browser) clearIn(origin string) error {
	raw, err := b.control.do("", "Target.attachToTarget", fmt.Sprintf(`{"targetId":%q,"flatten":true}`, b.home))
	if err != nil {
		return err
	}
	session, err := look(raw, "result.sessionId")
	if err != nil {
		return err
	}
	_, err = b.control.do(session, "Storage.clearDataForOrigin", fmt.Sprintf(`{"origin":%q,"storageTypes":"all"}`, origin))
	_, err2 := b.control.do("", "Target.detachFromTarget", fmt.Sprintf(`{"sessionId":%q}`, session))
	return errors.Join(err, err2)
}

// OnPort starts a Chromium on a debugging port, with the arguments that the sidecar gives
// to its browsers.
func OnPort(binary, dir string) (*Browser, error) {
	downloads := filepath.Join(dir, "downloads")
	if err := os.MkdirAll(downloads, 0o700); err != nil {
		return nil, err
	}
	p, err := sides.StartPort(context.Background(), sides.PortOptions{
		Binary: binary, Profile: filepath.Join(dir, "profile"), Env: []string{"TMPDIR=" + dir}, Start: 4 * patience, End: 2 * patience,
	})
	if err != nil {
		return nil, err
	}
	return begin(p.Host, downloads, func() error {
		p.Stop()
		return nil
	})
}

// Sidecar is a running sidecar.
type Sidecar struct {
	*sides.Sidecar
	profiles int
}

// Browser opens a session on a new profile.
func (s *Sidecar) Browser() (*Browser, error) {
	s.profiles++
	body := fmt.Sprintf(`{"profile_id":"differ-%d","worker_id":"differ","task_id":"scripts","create":true,"dedicated_port":true,"on_close":"keep","on_drop":"release"}`, s.profiles)
	resp, err := http.Post(s.URL+"/v1/sessions", "application/json", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var session struct {
		SessionID    string `json:"session_id"`
		Token        uint64 `json:"lease_token"`
		DedicatedURL string `json:"dedicated_url"`
		ExchangeDir  string `json:"exchange_dir"`
	}
	if err := json.Unmarshal(said, &session); err != nil || session.DedicatedURL == "" {
		return nil, fmt.Errorf("no session: %s %s", resp.Status, said)
	}
	at, err := url.Parse(session.DedicatedURL)
	if err != nil {
		return nil, err
	}
	return begin(at.Host, session.ExchangeDir, func() error {
		ending := fmt.Sprintf(`{"lease_token":%d,"outcome":"completed"}`, session.Token)
		req, err := http.NewRequest(http.MethodDelete, s.URL+"/v1/sessions/"+session.SessionID, bytes.NewReader([]byte(ending)))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close() // a script may have ended the session already
	})
}
