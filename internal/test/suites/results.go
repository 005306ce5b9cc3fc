package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
)

// verdict is what became of one test on one side.
type verdict string

const (
	passed  verdict = "passed"
	failed  verdict = "failed"
	skipped verdict = "skipped" // by the suite itself
	// absent is a test without a result: what ran it ended before.
	absent verdict = "absent"
)

// result is a verdict, and what was said of a failure.
type result struct {
	Verdict verdict
	Said    string
}

// results are those of one play, by the tests' full names.
type results map[string]result

// report is a line that the reporters in js write of each test.
type report struct {
	Name    string  `json:"name"`
	Verdict verdict `json:"verdict"`
	Error   string  `json:"error"`
}

// readReports reads what a reporter wrote: a line of JSON for each test. A last line that
// was cut off, since the process ended, is left out. A test with several results keeps the
// last one.
func readReports(raw []byte) (results, error) {
	r := results{}
	for n, line := range bytes.SplitAfter(raw, []byte("\n")) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			continue // nothing, or cut off
		}
		var one report
		if err := json.Unmarshal(line, &one); err != nil {
			return nil, fmt.Errorf("line %d of the report: %w", n+1, err)
		}
		switch {
		case one.Name == "":
			return nil, fmt.Errorf("line %d of the report names no test", n+1)
		case one.Verdict != passed && one.Verdict != failed && one.Verdict != skipped:
			return nil, fmt.Errorf("line %d of the report: %q is no verdict", n+1, one.Verdict)
		}
		r[one.Name] = result{Verdict: one.Verdict, Said: one.Error}
	}
	return r, nil
}

// readReportFile is readReports of a file. One that is not there has no results.
func readReportFile(file string) (results, error) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return results{}, nil
	}
	if err != nil {
		return nil, err
	}
	return readReports(raw)
}

var (
	goVerdict = regexp.MustCompile(`^--- (PASS|FAIL|SKIP): (\S+) \(`)
	goBegun   = regexp.MustCompile(`^=== (?:RUN|CONT) +(\S+)$`)
)

var goVerdicts = map[string]verdict{"PASS": passed, "FAIL": failed, "SKIP": skipped}

// saidBytes is how much of a failed test's output is kept.
const saidBytes = 4 << 10

// readGoTest reads what go test -v printed. It returns the results of the tests on the top
// level, and the one of them that was running when the output ended without its result:
// what ended the process.
func readGoTest(output []byte) (r results, broke string) {
	r = results{}
	lines := bufio.NewScanner(bytes.NewReader(output))
	lines.Buffer(nil, len(output)+1)
	var current string
	var said []byte
	for lines.Scan() {
		line := lines.Bytes()
		if m := goBegun.FindSubmatch(line); m != nil {
			name, _, _ := bytes.Cut(m[1], []byte("/"))
			if string(name) != current {
				said = said[:0]
			}
			current = string(name)
			continue
		}
		if m := goVerdict.FindSubmatch(line); m != nil {
			name := string(m[2])
			one := result{Verdict: goVerdicts[string(m[1])]}
			if one.Verdict == failed {
				one.Said = string(said)
			}
			r[name] = one
			if name == current {
				current = ""
			}
			continue
		}
		if len(said)+len(line) < saidBytes {
			said = append(append(said, line...), '\n')
		}
	}
	if _, has := r[current]; current != "" && !has {
		return r, current
	}
	return r, ""
}
