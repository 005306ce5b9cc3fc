package chrome_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold/launcher/chrome"
)

// TestTry: a browser that works says so, one that does not says why, and nothing is left.
func TestTry(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	nothingLeft := func(name string) {
		t.Helper()
		if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
			t.Errorf("%s: %v is left (%v)", name, left, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	binary, err := chrome.Find("")
	if err != nil {
		t.Fatal(err)
	}
	got, err := chrome.Try(ctx, chrome.Options{Binary: binary, Headless: true})
	if err != nil || !strings.Contains(got.Product, "Chrome/") || got.TextWidth < 50 || got.Took <= 0 {
		t.Errorf("%+v %v", got, err)
	}
	nothingLeft("a browser")
	fonts := filepath.Join(t.TempDir(), "fonts.conf")
	if err := os.WriteFile(fonts, []byte(`<?xml version="1.0"?><fontconfig><dir>/nowhere</dir></fontconfig>`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FONTCONFIG_FILE", fonts)
	if got, err := chrome.Try(ctx, chrome.Options{Binary: binary, Headless: true}); err != nil || got.TextWidth != 0 {
		t.Errorf("without fonts: %+v %v", got, err)
	}
	nothingLeft("one without fonts")
	var failed *chrome.StartError
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(modeVar, "exits")
	if _, err = chrome.Try(ctx, chrome.Options{Binary: self, Headless: true}); !errors.As(err, &failed) || !strings.Contains(failed.Output, "early") {
		t.Errorf("one that ends at once: %v", err)
	}
	nothingLeft("one that ends at once")
	silent := filepath.Join(t.TempDir(), "silent")
	if err := os.WriteFile(silent, []byte("#!/bin/sh\n: > \"$0.runs\"\nexec sleep 600\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	soon, cancelSoon := context.WithCancel(ctx)
	var asked sync.WaitGroup
	asked.Go(func() { // its time is up once it runs
		defer cancelSoon()
		for _, err := os.Stat(silent + ".runs"); err != nil && ctx.Err() == nil; _, err = os.Stat(silent + ".runs") {
			time.Sleep(time.Millisecond)
		}
	})
	defer asked.Wait()
	if _, err = chrome.Try(soon, chrome.Options{Binary: silent, Headless: true}); !errors.As(err, &failed) || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one that does not answer: %v", err)
	}
	nothingLeft("one that does not answer")
}
