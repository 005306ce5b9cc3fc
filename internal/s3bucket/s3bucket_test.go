package s3bucket_test

import (
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"leasehold/internal/objects"
	"leasehold/internal/s3bucket"
	"leasehold/internal/test/objectstest"
	"leasehold/internal/test/s3test"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestObjects(t *testing.T) {
	home := t.TempDir()
	for name, value := range map[string]string{
		"HOME": home, "AWS_ACCESS_KEY_ID": s3test.AccessKey, "AWS_SECRET_ACCESS_KEY": s3test.SecretKey, "AWS_SESSION_TOKEN": "",
		"AWS_ACCESS_KEY": "", "AWS_SECRET_KEY": "", "AWS_PROFILE": "", "AWS_CONFIG_FILE": filepath.Join(home, "config"),
		"AWS_SHARED_CREDENTIALS_FILE": filepath.Join(home, "credentials"), "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
	server, n := s3test.Start(t), 0
	objectstest.Run(t, func(t *testing.T) objects.Objects {
		n++ // an empty store for each
		cfg, err := s3bucket.ParseURL(server.URL("host/" + strings.Repeat("x", n)))
		if err != nil {
			t.Fatal(err)
		}
		b, err := s3bucket.Open("profile store", cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		if err := b.Check(t.Context(), "conditions"); err != nil {
			t.Fatal(err)
		}
		if err := b.Delete(t.Context(), "conditions"); err != nil {
			t.Fatal(err)
		}
		return b
	})
}
