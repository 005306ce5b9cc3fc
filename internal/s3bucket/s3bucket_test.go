package s3bucket_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"leasehold/internal/objects"
	"leasehold/internal/s3bucket"
	"leasehold/internal/test/objectstest"
	"leasehold/internal/test/s3test"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// credentials makes those of the tests the only ones.
func credentials(t *testing.T) {
	t.Helper()
	home := t.TempDir()
	for name, value := range map[string]string{
		"HOME": home, "AWS_ACCESS_KEY_ID": s3test.AccessKey, "AWS_SECRET_ACCESS_KEY": s3test.SecretKey, "AWS_SESSION_TOKEN": "",
		"AWS_ACCESS_KEY": "", "AWS_SECRET_KEY": "", "AWS_PROFILE": "", "AWS_CONFIG_FILE": filepath.Join(home, "config"),
		"AWS_SHARED_CREDENTIALS_FILE": filepath.Join(home, "credentials"), "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
}

func open(t *testing.T, url string) *s3bucket.Bucket {
	t.Helper()
	cfg, err := s3bucket.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s3bucket.Open("profile store", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func TestObjects(t *testing.T) {
	credentials(t)
	server, n := s3test.Start(t), 0
	objectstest.Run(t, func(t *testing.T) objects.Objects {
		n++ // an empty store for each
		b := open(t, server.URL("host/"+strings.Repeat("x", n)))
		if err := b.Check(t.Context(), "conditions"); err != nil {
			t.Fatal(err)
		}
		if err := b.Delete(t.Context(), "conditions"); err != nil {
			t.Fatal(err)
		}
		return b
	})
}

// conditional is a server that takes one object, and knows some of the conditions of a write.
type conditional struct {
	ignores string // the header of a condition
	// resets makes it refuse a write by closing the connection before it has read the content.
	resets bool

	mu   sync.Mutex
	etag string
	puts int
}

func (c *conditional) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Method == http.MethodGet {
		_, _ = io.WriteString(w, `<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>`)
		return
	}
	if r.Method == http.MethodHead {
		if c.etag == "" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", `"`+c.etag+`"`)
		w.Header().Set("Last-Modified", time.Time{}.Format(http.TimeFormat))
		return
	}
	is := func(header string) string {
		if header == c.ignores {
			return ""
		}
		return strings.Trim(r.Header.Get(header), `"`)
	}
	if match := is("If-Match"); is("If-None-Match") == "*" && c.etag != "" || match != "" && match != c.etag {
		if c.resets {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			_ = conn.(*net.TCPConn).SetLinger(0) // so that closing resets it
			_ = conn.Close()
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusPreconditionFailed)
		_, _ = io.WriteString(w, `<Error><Code>PreconditionFailed</Code></Error>`)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	c.puts++
	c.etag = fmt.Sprintf("%032d", c.puts)
	w.Header().Set("ETag", `"`+c.etag+`"`)
}

// TestAServerThatIgnoresConditionsIsRefused: of two that write a profile's list the later one would win.
func TestAServerThatIgnoresConditionsIsRefused(t *testing.T) {
	credentials(t)
	for _, ignored := range []string{"", "If-None-Match", "If-Match"} {
		server := httptest.NewServer(&conditional{ignores: ignored})
		t.Cleanup(server.Close)
		b := open(t, s3test.URL(server.Listener.Addr().String(), "p"))
		for range 2 { // with an empty bucket, and again
			err := b.Check(t.Context(), "conditions")
			if refused := errors.Is(err, s3bucket.ErrUnfit); refused != (ignored != "") || refused && !strings.Contains(err.Error(), "ignores "+ignored+",") || !refused && err != nil {
				t.Errorf("the server ignores %q: %v", ignored, err)
			}
		}
	}
}

// TestARefusalThatIsNotHeard: a server that refuses a write may close the connection before it has
// read the content, so that its answer is lost.
func TestARefusalThatIsNotHeard(t *testing.T) {
	credentials(t)
	for _, c := range []struct{ name, there, version string }{
		{"made twice", "00000000000000000000000000000001", ""},
		{"replaced what somebody else wrote", "00000000000000000000000000000002", "00000000000000000000000000000001"},
		{"replaced what was deleted", "", "00000000000000000000000000000001"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(&conditional{etag: c.there, resets: true})
			t.Cleanup(server.Close)
			b := open(t, s3test.URL(server.Listener.Addr().String(), "p"))
			if err := b.Put(t.Context(), "key", make([]byte, 1<<20), c.version); !errors.Is(err, objects.ErrOtherVersion) {
				t.Errorf("error %v, want %v", err, objects.ErrOtherVersion)
			}
		})
	}
	t.Run("no answer at all", func(t *testing.T) {
		server := httptest.NewServer(http.NotFoundHandler())
		b := open(t, s3test.URL(server.Listener.Addr().String(), "p"))
		server.Close()
		if err := b.Put(t.Context(), "key", nil, ""); err == nil || errors.Is(err, objects.ErrOtherVersion) {
			t.Errorf("error %v, want one of the network", err)
		}
	})
}
