package s3objects_test

import (
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"leasehold/internal/s3bucket"
	"leasehold/internal/test/s3test"
	"leasehold/launcher/snapshots"
	"leasehold/launcher/snapshots/objectstest"
	"leasehold/launcher/snapshots/s3objects"
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
	objectstest.Run(t, func(t *testing.T) snapshots.Objects {
		n++ // an empty store for each
		cfg, err := s3bucket.ParseURL(server.URL("host/" + strings.Repeat("x", n)))
		if err != nil {
			t.Fatal(err)
		}
		o, err := s3objects.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(o.Close)
		if err := o.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := o.Delete(t.Context(), "leasehold-conditions"); err != nil {
			t.Fatal(err)
		}
		return o
	})
}
