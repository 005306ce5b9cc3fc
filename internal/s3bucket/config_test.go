package s3bucket_test

import (
	"strings"
	"testing"

	"leasehold/internal/s3bucket"
)

func TestParseURL(t *testing.T) {
	for _, c := range []struct {
		url  string
		want s3bucket.Config
	}{
		{"s3://evidence", s3bucket.Config{Bucket: "evidence"}},
		{"s3://evidence/", s3bucket.Config{Bucket: "evidence"}},
		{"s3://evidence/a/b/?region=eu-central-1", s3bucket.Config{Bucket: "evidence", Prefix: "a/b/", Region: "eu-central-1"}},
		{"s3://evidence/a?endpoint=http://127.0.0.1:7070&path_style=true", s3bucket.Config{Bucket: "evidence", Prefix: "a/", Endpoint: "127.0.0.1:7070", Insecure: true, PathStyle: true}},
		{"s3://evidence?endpoint=https://s3.example.com/", s3bucket.Config{Bucket: "evidence", Endpoint: "s3.example.com"}},
		{"s3://evidence?endpoint=[::1]:7070", s3bucket.Config{Bucket: "evidence", Endpoint: "[::1]:7070"}},
	} {
		if got, err := s3bucket.ParseURL(c.url); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.url, got, err, c.want)
		}
	}
	for _, c := range []struct{ url, want string }{
		{"http://evidence", "want s3://"},
		{"s3://", "bucket"},
		{"s3://Evidence", "bucket"},
		{"s3://evidence/a/../b", "prefix"},
		{"s3://evidence/a//b", "prefix"},
		{"s3://evidence#x", "no #"},
		{"s3://hunter2:hunter2@evidence", "AWS_ACCESS_KEY_ID"},
		{"s3://evidence?access_key=hunter2", "AWS_ACCESS_KEY_ID"},
		{"s3://evidence?secret_key=hunter2", "AWS_ACCESS_KEY_ID"},
		{"s3://evidence?endpoint=http://hunter2:hunter2@127.0.0.1:1", "AWS_ACCESS_KEY_ID"},
		{"s3://evidence?endpoint=ftp://x", "endpoint"},
		{"s3://evidence?endpoint=a&endpoint=b", "more than once"},
		{"s3://evidence?path_style=maybe", "true or false"},
		{"s3://evidence?region=a/b", "region"},
	} {
		_, err := s3bucket.ParseURL(c.url)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v; want %q", c.url, err, c.want)
		}
	}
}
