package s3store_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"leasehold/evidence"
	"leasehold/evidence/s3store"
	"leasehold/internal/s3bucket"
	"leasehold/internal/test/s3test"
	"leasehold/internal/test/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 60 * time.Second

// credentials makes Open find these credentials, and none of this machine's.
func credentials(t *testing.T, access, secret string) {
	home := t.TempDir()
	for name, value := range map[string]string{
		"HOME": home, "AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": "",
		"AWS_ACCESS_KEY": "", "AWS_SECRET_KEY": "", "AWS_PROFILE": "", "AWS_CONFIG_FILE": filepath.Join(home, "config"),
		"AWS_SHARED_CREDENTIALS_FILE": filepath.Join(home, "credentials"), "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
}

func openAt(t *testing.T, url string) *s3store.Store {
	t.Helper()
	cfg, err := s3bucket.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	s, err := s3store.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestStore(t *testing.T) {
	credentials(t, s3test.AccessKey, s3test.SecretKey)
	server := s3test.Start(t)
	n := 0
	storetest.Run(t, func(t *testing.T) (evidence.Store, storetest.Damage) {
		n++
		prefix := "host/" + strings.Repeat("x", n) // each test gets an empty store
		root := filepath.Join(server.Root, prefix)
		path := func(evidenceID, name string) string { return filepath.Join(root, "bundles", evidenceID, name) }
		must := func(t *testing.T, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		return openAt(t, server.URL(prefix)), storetest.Damage{
			Change: func(t *testing.T, _, evidenceID, name string) {
				b, err := os.ReadFile(path(evidenceID, name))
				must(t, err)
				b[len(b)-2] ^= 1
				must(t, os.WriteFile(path(evidenceID, name), b, 0o600))
			},
			Remove: func(t *testing.T, _, evidenceID, name string) { must(t, os.Remove(path(evidenceID, name))) },
			Swap: func(t *testing.T, _, a, b string) {
				must(t, os.Rename(path(a, ""), path("x", "")))
				must(t, os.Rename(path(b, ""), path(a, "")))
				must(t, os.Rename(path("x", ""), path(b, "")))
			},
		}
	})
}

// Programs outside this package depend on the layout.
func TestLayout(t *testing.T) {
	credentials(t, s3test.AccessKey, s3test.SecretKey)
	server := s3test.Start(t)
	s := openAt(t, server.URL("a/b"))
	b, _ := storetest.Seal(t, storetest.Spool(t), "p.1", "ev_1", 1, evidence.Link{})
	if err := errors.Join(s.Check(t.Context()), s.Check(t.Context()), s.Put(t.Context(), b)); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"leasehold-evidence.json", "profiles/p.1/ev_1", "bundles/ev_1/journal.jsonl", "bundles/ev_1/screenshot-1.jpg",
	} {
		if _, err := os.Stat(filepath.Join(server.Root, "a/b", key)); err != nil {
			t.Error(err)
		}
	}
	raw, err := os.ReadFile(filepath.Join(server.Root, "a/b/bundles/ev_1/manifest.json"))
	if err != nil || !bytes.Equal(raw, b.Raw) {
		t.Errorf("the manifest's object: %v", err)
	}
	if list, err := openAt(t, server.URL("a")).List(t.Context(), ""); err != nil || len(list) != 0 {
		t.Errorf("a store above this one lists %v, %v", list, err)
	}
}

// Problems that do not go away by themselves are reported at the start, with what to do about
// them.
func TestCheck(t *testing.T) {
	credentials(t, s3test.AccessKey, s3test.SecretKey)
	server := s3test.Start(t)
	good := server.URL("")
	for _, c := range []struct {
		name, access, secret, url, want string
	}{
		{"no credentials", "", "", good, "set AWS_ACCESS_KEY_ID"},
		{"unknown key", "nobody", s3test.SecretKey, good, "does not know the access key"},
		{"wrong secret", s3test.AccessKey, "hunter2", good, "the secret key is not that of the access key"},
		{"no bucket", s3test.AccessKey, s3test.SecretKey, strings.Replace(good, "s3://evidence", "s3://nosuch", 1), "create it first"},
	} {
		t.Run(c.name, func(t *testing.T) {
			credentials(t, c.access, c.secret)
			err := openAt(t, c.url).Check(t.Context())
			if !errors.Is(err, s3bucket.ErrUnfit) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error has the secret: %v", err)
			}
		})
	}
	t.Run("from a file", func(t *testing.T) {
		credentials(t, "", "")
		file := "[work]\naws_access_key_id = " + s3test.AccessKey + "\naws_secret_access_key = " + s3test.SecretKey + "\n"
		if err := os.WriteFile(os.Getenv("AWS_SHARED_CREDENTIALS_FILE"), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("AWS_PROFILE", "work")
		if err := openAt(t, good).Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("away", func(t *testing.T) {
		s := openAt(t, good)
		server.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := s.Check(ctx); err == nil || errors.Is(err, s3bucket.ErrUnfit) {
			t.Errorf("%v; want an error that may pass", err)
		}
	})
}

// A bundle waits in the spool while the server is away or hangs. It is uploaded afterwards as it
// was sealed, with the same token.
func TestServerAwayAndSlow(t *testing.T) {
	credentials(t, s3test.AccessKey, s3test.SecretKey)
	server := s3test.Start(t)
	s := openAt(t, server.URL("p"))
	spool := storetest.Spool(t)
	a := evidence.NewArchive(spool, s, zerolog.Nop())
	save := func(evidenceID string, token uint64, previous evidence.Link, patience time.Duration) evidence.Link {
		t.Helper()
		b, err := a.New(evidence.Manifest{
			EvidenceID: evidenceID, ProfileID: "p", LeaseToken: token,
			PreviousEvidenceID: previous.EvidenceID, PreviousManifestSHA256: previous.SHA256,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Add("a.txt", evidence.KindOutput, "text/plain", []byte(evidenceID)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		m, sum, err := a.Save(ctx, b)
		if err != nil {
			t.Fatal(err)
		}
		return evidence.Link{EvidenceID: m.EvidenceID, SHA256: sum}
	}
	server.Stop()
	first := save("ev_1", 7, evidence.Link{}, patience)
	server.Run()
	server.Pause()
	head := save("ev_2", 8, first, time.Second)
	if got, err := a.Part(t.Context(), "ev_2", "a.txt"); err != nil || string(got) != "ev_2" {
		t.Errorf("while the server hangs: %q, %v", got, err)
	}
	server.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := a.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if ids, err := spool.Sealed(); err != nil || len(ids) != 0 {
		t.Errorf("still in the spool: %v, %v", ids, err)
	}
	if r, err := evidence.Verify(ctx, s, "p", head); err != nil || !r.OK() || r.Bundles != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	if list, err := s.List(ctx, "p"); err != nil || len(list) != 2 || list[0].LeaseToken != 8 || list[1].LeaseToken != 7 {
		t.Errorf("%+v, %v", list, err)
	}
}

// cutter is a proxy that ends each connection after it has passed left bytes on to the server.
type cutter struct {
	net.Listener
	mu   sync.Mutex
	left int64
	all  sync.WaitGroup
}

func newCutter(t *testing.T, to string) *cutter {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{Listener: l}
	c.all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.all.Go(func() { c.carry(conn, to) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		c.all.Wait()
	})
	return c
}

func (c *cutter) carry(conn net.Conn, to string) {
	defer conn.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { _, _ = io.Copy(conn, server); _ = conn.Close() })
	c.mu.Lock()
	left := c.left
	c.mu.Unlock()
	_, _ = io.Copy(server, io.LimitReader(conn, left))
	_ = server.Close()
	back.Wait()
}

func (c *cutter) allow(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = bytes
}

// Wherever an upload breaks off, readers do not see its bundle, and the next upload completes it.
func TestHalfWrittenUpload(t *testing.T) {
	credentials(t, s3test.AccessKey, s3test.SecretKey)
	server := s3test.Start(t)
	proxy := newCutter(t, server.Addr)
	b, head := storetest.Seal(t, storetest.Spool(t), "p", "ev_1", 1, evidence.Link{})
	direct := openAt(t, server.URL("p"))
	broken := 0
	for _, bytes := range []int64{500, 100_000, 302_000, 304_000, 305_500, 306_500} {
		proxy.allow(bytes)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		through := openAt(t, s3test.URL(proxy.Addr().String(), "p"))
		err := through.Put(ctx, b)
		cancel()
		through.Close()
		if err == nil {
			break // the whole bundle got through, over several connections
		}
		broken++
		if _, err := direct.Manifest(t.Context(), "ev_1"); !errors.Is(err, evidence.ErrNotFound) {
			t.Errorf("cut after %d bytes: the manifest: %v", bytes, err)
		}
		if _, err := direct.Part(t.Context(), "ev_1", "screenshot-1.jpg"); !errors.Is(err, evidence.ErrNotFound) {
			t.Errorf("cut after %d bytes: a part: %v", bytes, err)
		}
		if list, err := direct.List(t.Context(), "p"); err != nil || len(list) != 0 {
			t.Errorf("cut after %d bytes: listed %v, %v", bytes, list, err)
		}
	}
	if broken == 0 {
		t.Error("no upload was cut")
	}
	// An earlier attempt could have left half a part.
	half := filepath.Join(server.Root, "p/bundles/ev_1/journal.jsonl")
	if err := errors.Join(os.MkdirAll(filepath.Dir(half), 0o700), os.WriteFile(half, []byte("{}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := direct.Put(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if r, err := evidence.Verify(t.Context(), direct, "p", head); err != nil || !r.OK() || r.Parts != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}
