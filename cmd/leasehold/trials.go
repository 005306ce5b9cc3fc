//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/evidence/natsstore"
	"leasehold/internal/durable"
	"leasehold/launcher/chrome"
	"leasehold/launcher/snapshots/natsobjects"
	"leasehold/lease/natskv"
)

// This file has the checks of doctor that try things, instead of only looking at them.

// browserTimeout limits the trial of a browser: its start on a busy host, and its close.
const browserTimeout = 60 * time.Second

// tryBrowser starts a browser as the sidecar would, on an empty profile, and asks it and one of
// its pages over the pipe. Its second result is about fonts.
func (c RunConfig) tryBrowser(ctx context.Context) []checkResult {
	binary, err := chrome.Find(c.Chrome)
	if err != nil {
		return []checkResult{{"browser", false, "not tried, for want of a Chrome"}}
	}
	ctx, cancel := context.WithTimeout(ctx, browserTimeout)
	defer cancel()
	tried, err := func() (chrome.Tried, error) {
		if err := c.mayRunAs(); err != nil {
			return chrome.Tried{}, err
		}
		plan, err := c.planConfinement(ctx, binary)
		if err != nil {
			return chrome.Tried{}, err
		}
		return chrome.Try(ctx, chrome.Options{Binary: binary, Headless: *c.Headless, Confinement: plan.rules.With(nil), User: c.User})
	}()
	if err != nil {
		return []checkResult{{"browser", false, err.Error()}}
	}
	works := fmt.Sprintf("%s was started, answered over its pipe, and was closed: %v", tried.Product, tried.Took.Round(time.Millisecond))
	results := []checkResult{{"browser", true, strings.Join(append([]string{works}, tried.Warnings...), "; ")}}
	if tried.TextWidth == 0 {
		return append(results, checkResult{"fonts", false, "pages show no text, since the browser finds no font: install some, such as fonts-liberation (and fonts-noto-cjk, fonts-noto-color-emoji)"})
	}
	return append(results, checkResult{"fonts", true, "pages show text"})
}

// checkSpace tells how much space is left for profiles, evidence and the embedded NATS.
func (c RunConfig) checkSpace() (string, error) {
	var found []string
	var short error
	for _, one := range []ownFile{{flag: "--data-dir", path: c.DataDir}, {flag: "--profiles-dir", path: c.ProfilesDir}} {
		free, err := durable.FreeSpace(existing(one.path))
		if err != nil {
			return "", err
		}
		left := free.Bytes
		found = append(found, fmt.Sprintf("%s left for %s", humanize.IBytes(left), one.flag))
		need := uint64(c.MinFreeDisk)
		if one.flag == "--data-dir" && !exists(filepath.Join(c.DataDir, reserveFile)) {
			need += uint64(c.DiskReserve) // the reserve is taken at the first start
		}
		if left < need {
			short = errors.Join(short, fmt.Errorf("%s left for %s %s, and without %s no browser is started (--min-free-disk, --disk-reserve): make room", humanize.IBytes(left), one.flag, one.path, humanize.IBytes(need)))
		}
	}
	return strings.Join(found, ", "), short
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// tryAdvertised asks the address to which other sidecars send workers, as they would.
func (c RunConfig) tryAdvertised(ctx context.Context, running bool) (string, error) {
	u, err := url.Parse(c.advertised())
	if err != nil {
		return "", fmt.Errorf("--advertise-url: %w", err)
	}
	addresses, err := net.DefaultResolver.LookupHost(ctx, u.Hostname())
	if err != nil {
		return "", fmt.Errorf("--advertise-url %s: its name is not known on this host: %w", c.AdvertiseURL, err)
	}
	if !running {
		return fmt.Sprintf("%s is %s; ask again when the sidecar runs, whether it is reached there", c.AdvertiseURL, strings.Join(addresses, ", ")), nil
	}
	unknown := ""
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		// It does not matter whether this host knows the certificate's authority, which workers
		// have to know. The name in the certificate matters.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			own := s.PeerCertificates[0]
			if err := own.VerifyHostname(u.Hostname()); err != nil {
				return err
			}
			between := x509.NewCertPool()
			for _, one := range s.PeerCertificates[1:] {
				between.AddCert(one)
			}
			if _, err := own.Verify(x509.VerifyOptions{Intermediates: between}); err != nil {
				unknown = fmt.Sprintf("; this host does not know who signed its certificate (%v): workers have to", err)
			}
			return nil
		},
	}}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath("healthz").String(), nil)
	if err != nil {
		return "", fmt.Errorf("--advertise-url: %w", err)
	}
	response, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return "", fmt.Errorf("--advertise-url %s is not reached from this host: %w", c.AdvertiseURL, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64))
	if err != nil || response.StatusCode != http.StatusOK || strings.TrimSpace(string(body)) != "ok" {
		return "", fmt.Errorf("--advertise-url %s: something that is no sidecar answers there, with %s", c.AdvertiseURL, response.Status)
	}
	return c.AdvertiseURL + " answers, asked from this host" + unknown, nil
}

// tryNATS writes to and reads from a NATS server of the user's own.
func (c RunConfig) tryNATS(ctx context.Context, conn *nats.Conn, js jetstream.JetStream) (found []string, bad error) {
	for _, f := range natskv.Try(ctx, conn) {
		if f.Grade == natskv.Unsafe {
			bad = errors.Join(bad, errors.New(f.Text))
		} else {
			found = append(found, f.Text)
		}
	}
	if c.EvidenceStore == ownNATS {
		switch made, err := natsstore.Try(ctx, js); {
		case err != nil:
			bad = errors.Join(bad, err)
		case made:
			found = append(found, "something was written to the object store of the evidence, read, and removed")
		}
	}
	if c.ProfileStore == ownNATS {
		switch made, err := natsobjects.Try(ctx, js); {
		case err != nil:
			bad = errors.Join(bad, err)
		case made:
			found = append(found, "something was written to the stream of the snapshots, read, and removed")
		default:
			found = append(found, "stream "+natsobjects.Stream+" is made at the first start")
		}
	}
	return found, bad
}
