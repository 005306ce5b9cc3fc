//go:build linux

package main

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// TestEverySettingWithAFileKeepsItFromBrowsers goes through all settings of the sidecar: what one names, as a path or
// as a URL of a file, browsers may not reach, unless it is there for them.
func TestEverySettingWithAFileKeepsItFromBrowsers(t *testing.T) {
	forBrowsers := []string{"file-root", "chrome"}
	var c struct {
		RunConfig `embed:""`
	}
	parser, err := kong.New(&c, kong.Name("leasehold"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, f := range parser.Model.Flags {
		if f.Name == "help" {
			continue
		}
		isFile := f.Tag.Type == "path" || f.PlaceHolder == "FILE" || f.PlaceHolder == "DIR"
		takesURL := strings.Contains(f.Help, "file:///")
		if !isFile && !takesURL {
			continue
		}
		path := "/own/" + f.Name
		value := path
		if takesURL {
			value = "file://" + path + "#form=text"
		}
		switch f.Target.Interface().(type) {
		case string:
			f.Target.SetString(value)
		case []string:
			f.Target.Set(reflect.ValueOf([]string{value}))
		default:
			t.Fatalf("--%s is a %s, and names a file", f.Name, f.Target.Type())
		}
		if !slices.Contains(forBrowsers, f.Name) {
			want["--"+f.Name+" "+path] = true
		}
	}
	c.ConfigFile, want["--config /own/config"] = "/own/config", true // of all commands
	if len(want) < 10 {
		t.Fatalf("of all settings only %v name files", want)
	}
	for _, own := range c.ownFiles() {
		named := own.flag + " " + own.path
		if !want[named] {
			t.Errorf("%s is kept from browsers, or twice", named)
		}
		delete(want, named)
	}
	for named := range want {
		t.Errorf("%s is not kept from browsers", named)
	}
	if none := (RunConfig{EvidenceStore: ownNATS, ProfileStore: "s3://bucket/prefix", Notify: []string{"https://hooks.example/x"}}).ownFiles(); len(none) > 0 {
		t.Errorf("without files: %v", none)
	}
}

// What is public, such as a certificate, may lie where browsers read; what they could change may not.
func TestWhatBrowsersMayReadButNotChange(t *testing.T) {
	readable := map[string]bool{}
	for _, own := range (RunConfig{TLSCert: "/a", NATSCA: "/b", ClientCA: "/c", SitesDir: "/d", TLSKey: "/e"}).ownFiles() {
		readable[own.flag] = own.public
	}
	if want := map[string]bool{"--tls-cert": true, "--nats-ca": true, "--client-ca": true, "--sites-dir": true, "--tls-key": false}; !reflect.DeepEqual(readable, want) {
		t.Errorf("%v, want %v", readable, want)
	}
	shared, certificates := t.TempDir(), "/usr/share/ca-certificates/own.pem"
	binary := "/bin/sh"
	for _, one := range []struct {
		config RunConfig
		flag   string // that exposes something
	}{
		{RunConfig{TLSCert: certificates}, ""},
		{RunConfig{TLSKey: certificates}, "--tls-key"},
		{RunConfig{TLSCert: filepath.Join(shared, "own.pem")}, "--tls-cert"},
	} {
		one.config.FileRoot = []string{shared}
		exposed, err := one.config.exposed(binary)
		if err != nil || (one.flag == "") != (len(exposed) == 0) || one.flag != "" && !strings.HasPrefix(exposed[0], one.flag+" ") {
			t.Errorf("%q, %v: want %q", exposed, err, one.flag)
		}
	}
}
