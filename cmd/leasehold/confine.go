//go:build linux

package main

import (
	"context"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"time"

	"leasehold/launcher/chrome"
	"leasehold/launcher/fileroots"
)

// confineTimeout limits how long the browser's binary may take to say its version.
const confineTimeout = 20 * time.Second

// confinement is what the kernel confines browsers to, according to --browser-sandbox. It is
// nil if they are not confined.
type confinement struct {
	rules *chrome.Confinement
	// text says what confines browsers; cautions says what is not confined.
	text     string
	cautions []string
}

// uncovered is what no version of Landlock covers that is used here.
const uncovered = "Unix sockets with a path, UDP, and names, owners and lengths of files stay open"

// planConfinement finds out what the kernel can do on this host. It returns an error if
// --browser-sandbox=require cannot be met.
func (c RunConfig) planConfinement(ctx context.Context, binary string) (confinement, error) {
	if c.BrowserSandbox == "off" {
		return confinement{
			text:     "off",
			cautions: []string{"--browser-sandbox=off: whoever drives a browser past the sidecar's checks reads and writes every file of its user"},
		}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, confineTimeout)
	defer cancel()
	kernel, err := chrome.CheckConfinement(ctx, binary, c.User)
	if err != nil {
		if c.BrowserSandbox == "require" {
			return confinement{}, fmt.Errorf("--browser-sandbox=require: %w", err)
		}
		return confinement{text: "none", cautions: []string{fmt.Sprintf("the kernel does not confine browsers to their files: %v", err)}}, nil
	}
	exposed, err := c.exposed(binary)
	if err != nil {
		return confinement{}, fmt.Errorf("--browser-sandbox: %w", err)
	}
	if len(exposed) > 0 && c.BrowserSandbox == "require" {
		return confinement{}, fmt.Errorf("--browser-sandbox=require: %s: move one of the two", strings.Join(exposed, "; "))
	}
	return confinement{rules: c.rules(), text: fmt.Sprintf("%s; %s", kernel, uncovered), cautions: exposed}, nil
}

// sharedDirs are the directories that every browser may read and write: the file roots.
func (c RunConfig) sharedDirs() []string {
	if len(c.FileRoot) > 0 {
		return c.FileRoot
	}
	return fileroots.Default()
}

func (c RunConfig) rules() *chrome.Confinement {
	return &chrome.Confinement{ReadWrite: c.sharedDirs()}
}

// exposed says what of the sidecar's own lies where the browsers of a binary may use it.
func (c RunConfig) exposed(binary string) (exposed []string, err error) {
	for _, own := range c.ownFiles() {
		by, err := c.rules().Exposes(binary, own.path, own.public)
		if err != nil {
			return nil, err
		}
		if by != "" {
			exposed = append(exposed, fmt.Sprintf("%s %s lies in %s, which browsers may use", own.flag, own.path, by))
		}
	}
	return exposed, nil
}

// ownFile is a file or directory of the sidecar, and the flag that names it.
type ownFile struct {
	flag, path string
	// public says that browsers may read it, but not change it.
	public bool
}

var wordInName = regexp.MustCompile("[a-z][A-Z]")

// ownFiles are what browsers may not reach: what any of the settings names.
func (c RunConfig) ownFiles() (own []ownFile) {
	settings := reflect.ValueOf(c)
	for i := range settings.NumField() {
		field := settings.Type().Field(i)
		if field.Tag.Get("browsers") == "use" {
			continue
		}
		values, _ := settings.Field(i).Interface().([]string)
		if one, ok := settings.Field(i).Interface().(string); ok {
			values = []string{one}
		}
		flag := field.Tag.Get("name")
		if flag == "" {
			flag = strings.ToLower(wordInName.ReplaceAllStringFunc(field.Name, func(s string) string { return s[:1] + "-" + s[1:] }))
		}
		for _, path := range values {
			if field.Tag.Get("type") != "path" {
				u, err := url.Parse(path)
				if err != nil || u.Scheme != "file" {
					continue
				}
				path = u.Path
			}
			if path != "" {
				own = append(own, ownFile{"--" + flag, path, field.Tag.Get("browsers") == "read"})
			}
		}
	}
	return own
}

func (c RunConfig) checkConfinement(ctx context.Context) (string, error) {
	binary, err := chrome.Find(c.Chrome)
	if err != nil {
		return "not tried, for want of a Chrome", nil
	}
	plan, err := c.planConfinement(ctx, binary)
	if err != nil {
		return "", err
	}
	return strings.Join(append([]string{plan.text}, plan.cautions...), "; "), nil
}

func (s *service) confineBrowsers(ctx context.Context) (*chrome.Confinement, error) {
	plan, err := s.config.planConfinement(ctx, s.chrome)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	for _, caution := range plan.cautions {
		s.log.Warn().Msg(caution)
	}
	s.log.Info().Str("sandbox", plan.text).Msg("what the kernel holds browsers to")
	return plan.rules, nil
}
