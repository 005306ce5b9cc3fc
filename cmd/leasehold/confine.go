//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"leasehold/launcher/chrome"
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
	rules := &chrome.Confinement{ReadWrite: c.sharedDirs()}
	var exposed []string
	var errs error
	for _, own := range c.ownFiles() {
		by, err := rules.Exposes(binary, own.path)
		if by != "" {
			exposed = append(exposed, fmt.Sprintf("%s %s lies in %s, which browsers may use", own.flag, own.path, by))
		}
		errs = errors.Join(errs, err)
	}
	if errs != nil {
		return confinement{}, fmt.Errorf("--browser-sandbox: %w", errs)
	}
	if len(exposed) > 0 && c.BrowserSandbox == "require" {
		return confinement{}, fmt.Errorf("--browser-sandbox=require: %s: move one of the two", strings.Join(exposed, "; "))
	}
	return confinement{rules: rules, text: fmt.Sprintf("%s; %s", kernel, uncovered), cautions: exposed}, nil
}

// sharedDirs are the directories that every browser may read and write: the file roots.
func (c RunConfig) sharedDirs() []string {
	if len(c.FileRoot) > 0 {
		return c.FileRoot
	}
	return []string{os.TempDir()}
}

// ownFile is a file or directory of the sidecar, and the flag that names it.
type ownFile struct{ flag, path string }

// ownFiles are what browsers may not reach as a whole.
func (c RunConfig) ownFiles() []ownFile {
	all := []ownFile{
		{"--data-dir", c.DataDir}, {"--profiles-dir", c.ProfilesDir}, {"--nats-creds", c.NATSCreds}, {"--proxies", c.Proxies},
		{"--token-file", c.TokenFile}, {"--tokens", c.Tokens}, {"--tls-key", c.TLSKey}, {"--profile-key", c.ProfileKey}, {"--secrets", c.Secrets},
	}
	if u, err := url.Parse(c.EvidenceStore); err == nil && u.Scheme == "file" {
		all = append(all, ownFile{"--evidence-store", u.Path})
	}
	if u, err := url.Parse(c.ProfileStore); err == nil && u.Scheme == "file" {
		all = append(all, ownFile{"--profile-store", u.Path})
	}
	for _, path := range c.SecretsKeys {
		all = append(all, ownFile{"--secrets-identity", path})
	}
	for _, path := range c.EvidenceKeys {
		all = append(all, ownFile{"--evidence-identity", path})
	}
	var given []ownFile
	for _, one := range all {
		if one.path != "" {
			given = append(given, one)
		}
	}
	return given
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
