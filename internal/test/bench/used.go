package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// usedCookies is how many cookies a used profile has, besides its ballast and its extension.
const usedCookies = 3000

// extension is what an extension needs that runs on every page.
var extension = map[string]string{
	"manifest.json": `{"manifest_version":3,"name":"used","version":"1","background":{"service_worker":"worker.js"},"permissions":["storage"],
"content_scripts":[{"matches":["<all_urls>"],"js":["page.js"],"run_at":"document_start"}]}`,
	"worker.js": `chrome.runtime.onInstalled.addListener(() => chrome.storage.local.set({used: true}));`,
	"page.js":   `document.documentElement.dataset.used = 'true';`,
}

// usedProfile measures how long a session of a profile that was used takes to begin, cold and with a warm
// browser, beside the same Chrome by hand: as cold session and warm handoff do, with 300 MB of sites'
// data, 3000 cookies and an extension.
func usedProfile(o options, binary string) (_ []result, err error) {
	dir, err := os.MkdirTemp("", "leasehold-bench-extension-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for name, content := range extension {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	s, err := startSidecar(binary, o.chrome+" --load-extension="+dir, "--keep-warm-min-memory", "0")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	hand, err := s.byHand(o.chrome)
	if err != nil {
		return nil, err
	}
	// The launcher leaves out arguments of the wrapper that it gives itself.
	if !slices.ContainsFunc(hand.args, func(arg string) bool { return strings.HasPrefix(arg, "--load-extension=") }) {
		return nil, errors.New("the browser was not started with the extension")
	}
	c, err := dial(s.taskURL("use", coldProfile, false))
	if err != nil {
		return nil, err
	}
	if err := s.over(c, c.setCookies(usedCookies)); err != nil {
		return nil, err
	}
	if err := hand.with(hand.dir, func(c *client) error { return c.setCookies(usedCookies) }); err != nil {
		return nil, err
	}
	for _, dir := range []string{s.profileDir(coldProfile), hand.dir} {
		if err := fill(filepath.Join(dir, "Default", "ballast"), o.ballast); err != nil {
			return nil, err
		}
	}
	results, err := compareBeginnings(o, s, hand, "used profile, cold")
	if err != nil {
		return nil, err
	}
	var warm []float64
	for round := range o.rounds + 1 {
		if _, err := s.first(fmt.Sprintf("leaves-%d", round), coldProfile, true); err != nil {
			return nil, err
		}
		took, err := s.first(fmt.Sprintf("takes-%d", round), coldProfile, false)
		if err != nil {
			return nil, err
		}
		if round > 0 {
			warm = append(warm, float64(took.Nanoseconds())/1e6)
		}
	}
	return append(results, result{Name: "used profile, warm: request to first CDP answer, p50", Unit: "ms", Value: median(warm)}), nil
}

// setCookies sets cookies of a hundred sites that stay for a year.
func (c *client) setCookies(n int) error {
	type cookie struct {
		Name    string `json:"name"`
		Value   string `json:"value"`
		Domain  string `json:"domain"`
		Path    string `json:"path"`
		Expires int64  `json:"expires"`
	}
	all := make([]cookie, n)
	for i := range all {
		all[i] = cookie{fmt.Sprintf("c%d", i/100), strings.Repeat("v", 60), fmt.Sprintf("site-%d.example", i%100), "/", time.Now().AddDate(1, 0, 0).Unix()}
	}
	params, err := json.Marshal(map[string]any{"cookies": all})
	if err != nil {
		return err
	}
	_, err = c.call("", "Storage.setCookies", string(params))
	return err
}
