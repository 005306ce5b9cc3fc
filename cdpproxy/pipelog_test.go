package cdpproxy

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"leasehold/internal/signed"
	"leasehold/internal/test/testkey"
)

// describe returns what a pipe log says, in a line for each browser session and each private page.
func describe(said onPipe) []string {
	var lines []string
	for _, p := range said.sessions {
		slices.Sort(p.children)
		var paused []string
		for r, auth := range p.paused {
			paused = append(paused, fmt.Sprintf("%s/%s/%s", r.sessionID, r.requestID, kindOfPause(auth)))
		}
		slices.Sort(paused)
		lines = append(lines, fmt.Sprintf("%s %d %v %v", p.id, p.token, p.children, paused))
	}
	for _, page := range said.private {
		lines = append(lines, fmt.Sprintf("private %s %s", page.opener, page.target))
	}
	return lines
}

func TestReplay(t *testing.T) {
	for _, tt := range []struct {
		name, pipeLog string
		want          []string
	}{
		{"nothing", "", nil},
		{"open", "open A 7\n", []string{"A 7 [] []"}},
		{"closed", "open A 7\nopen B 7\nclose A\n", []string{"B 7 [] []"}},
		{"children", "open A 7\nattach A c1\nattach A c2\ndetach c1\n", []string{"A 7 [c2] []"}},
		{"closed with its children", "open A 7\nattach A c1\nclose A\nattach A c2\npause c1 r plain\n", nil},
		{"paused", "open A 7\nattach A c1\npause c1 r1 plain\npause c1 r2 auth\npause A r3 plain\nsettle c1 r1\n", []string{"A 7 [c1] [A/r3/plain c1/r2/auth]"}},
		{"paused again", "open A 7\npause A r plain\nsettle A r\npause A r plain\n", []string{"A 7 [] [A/r/plain]"}},
		{"paused on what is gone", "open A 7\nattach A c1\npause c1 r plain\ndetach c1\n", []string{"A 7 [] []"}},
		{"private", "open O 0\nprivate O T\nprivate O T2\ngone T\n", []string{"O 0 [] []", "private O T2"}},
		{"private, and its opener has left", "format 2\nopen O 0\nprivate O T\nclose O\n", []string{"private O T"}},
		{"private, in the first format", "open O 0\nopen P 0\nprivate O T\nprivate P U\nclose O\n", []string{"P 0 [] []", "private P U"}},
		{"a torn line", "open A 7\nclose A", []string{"A 7 [] []"}},
		{"noise", "\n\nopen\nopen A\nopen A x\nwhat A\nopen A 7\npause A\n", []string{"A 7 [] []"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := describe(replay([]byte(tt.pipeLog))); !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestAPipeLogIsCompacted: the file stays short, and says the same.
func TestAPipeLogIsCompacted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	l, err := CreatePipeLog(path, testkey.Key)
	if err != nil {
		t.Fatal(err)
	}
	l.append(lineOpened, "A", "7")
	l.append(lineAttached, "A", "c")
	l.append(linePaused, "c", "first", "auth")
	l.append(lineOpened, "O", "0")
	for _, target := range []string{"T", "T2"} {
		l.append(linePrivate, "O", target)
	}
	l.append(lineClosed, "O")
	l.append(lineGone, "T2")
	for i := range 12_000 {
		r := fmt.Sprintf("interception-job-%d.0", i)
		l.append(linePaused, "c", r, "plain")
		l.append(lineSettled, "c", r)
	}
	l.append(linePaused, "c", "last", "plain")
	if fi, err := os.Stat(path); err != nil || fi.Size() > 2*largestPipeLog || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it is what OpenPipeLog has written
		next, err := OpenPipeLog(path, testkey.Key)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := describe(next.inherited), []string{"A 7 [c] [c/first/auth c/last/plain]", "private O T"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		next.append(lineOpened, "B", "8")
		next.append(lineClosed, "B")
		if err := next.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenPipeLog(path, testkey.Key); err == nil {
		t.Error("it is still there")
	}
}

// TestABrokenPipeLogIsRemoved: with a wrong one, the next launcher would leave requests
// paused.
func TestABrokenPipeLogIsRemoved(t *testing.T) {
	for _, tt := range []struct {
		name     string
		sabotage func(*PipeLog)
		id       string
	}{
		{"an id with a space", func(*PipeLog) {}, "a b"},
		{"an empty id", func(*PipeLog) {}, ""},
		{"a disk that takes nothing", func(l *PipeLog) { _ = l.file.Close() }, "A"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ledger")
			l, err := CreatePipeLog(path, testkey.Key)
			if err != nil {
				t.Fatal(err)
			}
			tt.sabotage(l)
			l.append(lineOpened, tt.id, "7")
			l.append(lineOpened, "B", "7")
			if b, err := os.ReadFile(path); !os.IsNotExist(err) {
				t.Errorf("it says %q, %v", strings.TrimSpace(string(b)), err)
			}
			if err := l.Remove(); err != nil {
				t.Error(err)
			}
		})
	}
	var none *PipeLog
	none.append(lineOpened, "A", "7")
	if none.Close() != nil || none.Remove() != nil {
		t.Error("no pipe log is one that does nothing")
	}
}

// TestAForgedPipeLogIsNotBelieved: what somebody else wrote into it opens no session to the
// next worker, and hides none. What comes before the forged line still has to be ended.
func TestAForgedPipeLogIsNotBelieved(t *testing.T) {
	dir := t.TempDir()
	write := func(t *testing.T, name string, key *signed.Key) []byte {
		t.Helper()
		path := filepath.Join(dir, name)
		l, err := CreatePipeLog(path, key)
		if err != nil {
			t.Fatal(err)
		}
		l.append(lineOpened, "A", "7")
		l.append(linePaused, "A", "r", "plain")
		l.append(lineOpened, "B", "8")
		b, err := os.ReadFile(path)
		if err := errors.Join(err, l.Close()); err != nil {
			t.Fatal(err)
		}
		return b
	}
	honest := write(t, "ledger", testkey.Key)
	lines := bytes.SplitAfter(honest, []byte("\n"))
	format, lines := lines[0], lines[1:]
	first := []string{"A 7 [] []"}
	two := []string{"A 7 [] [A/r/plain]"}
	for _, tt := range []struct {
		name    string
		pipeLog []byte
		want    []string
		whole   bool
	}{
		{"honest", honest, []string{"A 7 [] [A/r/plain]", "B 8 [] []"}, true},
		{"torn at its end", honest[:len(honest)-5], two, true},
		{"a line without a signature", append(slices.Clone(honest), "open C 9\n"...), []string{"A 7 [] [A/r/plain]", "B 8 [] []"}, false},
		{"another token", bytes.Replace(honest, []byte("B 8"), []byte("B 7"), 1), two, false},
		{"a line taken out", slices.Concat(format, lines[0], lines[2]), first, false},
		{"lines in another order", slices.Concat(format, lines[0], lines[2], lines[1]), first, false},
		{"a line again", slices.Concat(honest, lines[0]), []string{"A 7 [] [A/r/plain]", "B 8 [] []"}, false},
		{"of another session", write(t, "other", testkey.Key), nil, false},
		{"under another key", write(t, "ledger", signed.New([32]byte{1})), nil, false},
		{"before there were signatures", []byte("open A 7\n"), nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(dir, "ledger")
			if err := os.WriteFile(path, tt.pipeLog, 0o600); err != nil {
				t.Fatal(err)
			}
			l, err := OpenPipeLog(path, testkey.Key)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if got := describe(l.inherited); !slices.Equal(got, tt.want) || l.Whole() != tt.whole {
				t.Errorf("%q, whole %v; want %q, %v", got, l.Whole(), tt.want, tt.whole)
			}
			// To the next launcher it may not look whole.
			if _, err := os.Stat(path); (err == nil) != tt.whole {
				t.Errorf("after it was read: %v", err)
			}
		})
	}
}

func BenchmarkPipeLog(b *testing.B) {
	l, err := CreatePipeLog(filepath.Join(b.TempDir(), "ledger"), testkey.Key)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	for b.Loop() {
		l.append(linePaused, "0123456789ABCDEF0123456789ABCDEF", "interception-job-1.0", "plain")
		l.append(lineSettled, "0123456789ABCDEF0123456789ABCDEF", "interception-job-1.0")
	}
}
