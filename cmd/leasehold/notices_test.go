package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSettingsOfWebhooksThatCannotWorkAreRefused, by the flag's name.
func TestSettingsOfWebhooksThatCannotWorkAreRefused(t *testing.T) {
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	const hook = "https://hooks.example/x"
	for name, one := range map[string]struct {
		config RunConfig
		want   string
	}{
		"no URL":           {RunConfig{Notify: []string{hook, "here"}}, "--notify: "},
		"another form":     {RunConfig{Notify: []string{hook + "#form=fax"}}, "--notify: "},
		"a secret alone":   {RunConfig{NotifySecret: short}, "--notify-secret and"},
		"a proxy alone":    {RunConfig{NotifyProxy: "http://proxy:3128"}, "--notify-secret and"},
		"a short secret":   {RunConfig{Notify: []string{hook}, NotifySecret: short}, "--notify-secret: "},
		"no secret there":  {RunConfig{Notify: []string{hook}, NotifySecret: short + "er"}, "--notify-secret: "},
		"a proxy of SOCKS": {RunConfig{Notify: []string{hook}, NotifyProxy: "socks5://proxy:1080"}, "--notify-proxy: "},
	} {
		if _, err := one.config.notices(); err == nil || !strings.HasPrefix(err.Error(), one.want) {
			t.Errorf("%s: %v, want %q", name, err, one.want)
		}
	}
}

// TestDoctorTriesTheWebhooks, through the proxy, and shows what the one that fails answered.
func TestDoctorTriesTheWebhooks(t *testing.T) {
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Host)
		if r.URL.Host == "bad.example" {
			http.Error(w, "", http.StatusForbidden)
		}
	}))
	defer proxy.Close()
	c := RunConfig{Listen: "127.0.0.1:9333", Notify: []string{"http://good.example/x", "http://bad.example/secret-path"}, NotifyProxy: proxy.URL}
	var err error
	if c.Notices, err = c.notices(); err != nil {
		t.Fatal(err)
	}
	_, err = c.checkWebhooks(t.Context())
	if err == nil || err.Error() != "http://bad.example: answered 403 Forbidden, want 200 to 299" || strings.Join(asked, " ") != "good.example bad.example" {
		t.Errorf("asked %v: %v", asked, err)
	}
}
