package snapshots_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"leasehold/internal/test/objectstest"
	"leasehold/launcher/snapshots"
)

// cpu is the processor time of this process.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// half is content of which half can be compressed away, as of a database.
func half(seed, length int) string {
	var s strings.Builder
	for n := 0; s.Len() < length; n++ {
		s.WriteString(objectstest.Random(seed*1000+n, 2048))
		s.WriteString(strings.Repeat("\x00", 2048))
	}
	return s.String()[:length]
}

// BenchmarkSnapshot makes a snapshot of a profile of 300 MB after a session that changed
// what sessions change: pages all over the databases, logs of LevelDB that grew, and files
// that are written anew. cpu-s and sent-MB are of one snapshot.
func BenchmarkSnapshot(b *testing.B) {
	tree := objectstest.Tree{"Local State": half(1, 50_000)}
	for n := range 6 { // databases
		tree[fmt.Sprintf("Default/db-%d", n)] = half(10+n, 20<<20)
	}
	for n := range 400 { // site data
		tree[fmt.Sprintf("Default/IndexedDB/site-%d/%06d.ldb", n%40, n)] = half(100+n, 450_000)
	}
	dir := tree.Write(b)
	s := snapshots.New(openDir(b), snapshots.NewKey())
	options := snapshots.ReadOptions{Spool: b.TempDir(), Index: filepath.Join(b.TempDir(), "index")}
	seal := func() snapshots.Snapshot {
		r, err := s.Read(context.Background(), "p", dir, options)
		must(b, err)
		made, err := s.Seal(context.Background(), r, objectstest.About(1))
		must(b, errors.Join(err, r.Close()))
		return made
	}
	before := cpu(b)
	first := seal()
	b.Logf("the first snapshot: %d MB, %d MB sent, %v of processor time", first.Bytes>>20, first.Stored>>20, cpu(b)-before)
	var took time.Duration
	var sent uint64
	rounds := 0
	for b.Loop() {
		rounds++
		b.StopTimer()
		for n := range 2 { // of the databases, those of cookies and of history
			f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("Default/db-%d", n)), os.O_WRONLY, 0)
			must(b, err)
			for range 15 {
				_, err := f.WriteAt([]byte(objectstest.Random(rand.IntN(1e9), 4096)), rand.Int64N(20<<20)/4096*4096)
				must(b, err)
			}
			must(b, f.Close())
		}
		for n := range 4 {
			objectstest.Tree{fmt.Sprintf("Default/IndexedDB/site-%d/%06d.log", n, rounds): half(rounds*10+n, 200_000)}.WriteTo(b, dir)
		}
		objectstest.Tree{"Local State": half(rounds, 50_000), "Default/Preferences": half(rounds, 100_000)}.WriteTo(b, dir)
		b.StartTimer()
		before := cpu(b)
		made := seal()
		took += cpu(b) - before
		sent += made.Stored
	}
	b.ReportMetric(took.Seconds()/float64(rounds), "cpu-s")
	b.ReportMetric(float64(sent)/float64(rounds)/1e6, "sent-MB")
}

// BenchmarkList lists the snapshots of one profile, in a store with 10 000.
func BenchmarkList(b *testing.B) {
	s := snapshots.New(openDir(b), snapshots.NewKey())
	for n := range 10_000 { // each has a list of its own
		must(b, s.Raise(context.Background(), fmt.Sprintf("p%d", n), 1))
	}
	dir := objectstest.Profile().Write(b)
	for range 10 {
		if _, err := objectstest.Seal(b, s, "p5000", dir, 1); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		list, err := s.List(context.Background(), "p5000")
		if err != nil || len(list) != 10 {
			b.Fatalf("%d snapshots, error %v; want 10", len(list), err)
		}
	}
}
