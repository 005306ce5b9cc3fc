package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
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

func TestAProcessHasItsDescendants(t *testing.T) {
	all := map[int]process{1: {}, 2: {parent: 1}, 3: {parent: 1}, 4: {parent: 3}, 5: {parent: 4}, 6: {parent: 2}, 7: {}}
	for _, tt := range []struct {
		root    int
		without []int
		want    []int
	}{{1, nil, []int{1, 2, 3, 4, 5, 6}}, {1, []int{3}, []int{1, 2, 6}}, {3, nil, []int{3, 4, 5}}, {7, nil, []int{7}}} {
		if got := slices.Sorted(slices.Values(below(all, tt.root, tt.without...))); !slices.Equal(got, tt.want) {
			t.Errorf("below %d without %v: %v, want %v", tt.root, tt.without, got, tt.want)
		}
	}
}

func TestWorkersStopWhenOneFails(t *testing.T) {
	var did atomic.Int64
	if err := parallel(100, 4, func(int) error { did.Add(1); return nil }); err != nil || did.Load() != 100 {
		t.Errorf("did %d of 100, %v", did.Load(), err)
	}
	failed := errors.New("failed")
	if err := parallel(100, 1, func(i int) error {
		if i == 3 {
			return failed
		}
		if i > 3 {
			t.Errorf("%d was done after a failure", i)
		}
		return nil
	}); !errors.Is(err, failed) {
		t.Errorf("error %v, want %v", err, failed)
	}
}
