package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestARunIsPairedWithASavedOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "saved.json")
	before := []result{
		{Name: "evaluate", Unit: "us", Port: 100, Value: 150, Ratio: 1.5},
		{Name: "memory", Unit: "KiB", Value: 40},
	}
	if err := save(path, before); err != nil {
		t.Fatal(err)
	}
	saved, err := load(path)
	if err != nil || len(saved) != len(before) || saved["evaluate"] != before[0] || saved["memory"] != before[1] {
		t.Fatalf("loaded %+v, %v", saved, err)
	}
	var out strings.Builder
	now := []result{
		{Name: "evaluate", Unit: "us", Port: 200, Value: 240, Ratio: 1.2}, // from a slower machine, so the ratios are compared
		{Name: "memory", Unit: "KiB", Value: 60},
		{Name: "new", Unit: "us", Value: 1},
	}
	if err := show(&out, now, saved); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"evaluate": "1.5 0.80", "memory": "40 1.50", "new": "us"} {
		for line := range strings.Lines(out.String()) {
			if fields := strings.Join(strings.Fields(line), " "); strings.HasPrefix(fields, name) && !strings.HasSuffix(fields, want) {
				t.Errorf("%s, want it to end with %s", fields, want)
			}
		}
	}
	if lines := strings.Count(out.String(), "\n"); lines != 1+len(now) {
		t.Errorf("%d lines:\n%s", lines, &out)
	}
}

func TestLoadNamesWhatIsWrong(t *testing.T) {
	if saved, err := load(""); err != nil || len(saved) != 0 {
		t.Errorf("no file: %v, %v", saved, err)
	}
	path := filepath.Join(t.TempDir(), "other.json")
	if _, err := load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("no such file: %v", err)
	}
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(path); err == nil || !strings.Contains(err.Error(), "-save") {
		t.Errorf("not a saved run: %v", err)
	}
}
