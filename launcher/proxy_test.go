package launcher

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold/evidence"
	"leasehold/internal/test/fakechrome"
	"leasehold/launcher/api"
)

// TestAProxyIsNotForgotten: a directory whose last browser went out through a proxy is not
// opened without one, whether it is the configuration that lacks it or the record.
func TestAProxyIsNotForgotten(t *testing.T) {
	l, _ := startLauncher(t)
	o := optionsIn(t, t.TempDir(), evidence.Keys{})
	o.Chrome, o.ImportRoots, o.Proxies = fakechrome.Binary(t), []string{os.TempDir()}, nil
	labels := runIn(t, o)
	dir := userDataDir(t)
	imported := func(profile, label string) {
		t.Helper()
		if _, err := l.ImportProfile(t.Context(), profile, api.ProfileImport{From: dir}); err != nil {
			t.Fatal(err)
		}
		if _, err := labels.ImportProfile(t.Context(), profile, api.ProfileImport{From: dir, ProxyID: &label}); err != nil {
			t.Fatal(err)
		}
	}
	open := func(l *Launcher, profile string) error {
		_, err := l.Acquire(t.Context(), api.Manifest{ProfileID: profile})
		return err
	}
	imported("before", "p0")
	if err := open(labels, "before"); err != nil {
		t.Errorf("a label: %v", err)
	}
	if err := open(l, "before"); err != nil {
		t.Errorf("none ever: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "leasehold_proxy"), []byte("down"), 0o600); err != nil {
		t.Fatal(err)
	}
	imported("after", "down")
	var p *api.Problem
	for name, err := range map[string]error{
		"no proxies":         open(labels, "after"),
		"none in the record": open(l, "after"),
	} {
		if !errors.As(err, &p) || p.Code != api.CodeBrowserStartFailed || p.More["proxy_id"] != "down" {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The way out that the refusal names. It is opened through the proxy then, or not at all.
	proxy := "down"
	if _, err := l.PutProfile(t.Context(), "after", api.ProfileSettings{ProxyID: &proxy}); err != nil {
		t.Error(err)
	}
	if _, err := l.Acquire(t.Context(), api.Manifest{ProfileID: "after"}); !errors.As(err, &p) || !strings.Contains(p.Detail, "proxy down does not answer") || strings.Contains(p.Detail, "127.0.0.1:1") {
		t.Errorf("with its proxy, which does not answer: %v", err)
	}
}
