//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/internal/privatefile"
	"leasehold/launcher/notify"
)

// evidenceWaits is how long evidence may wait for its store before somebody is told.
const evidenceWaits = 15 * time.Minute

// notices reads the settings of webhooks.
func (c RunConfig) notices() (o notify.Options, err error) {
	for _, raw := range c.Notify {
		w, err := notify.Parse(raw)
		if err != nil {
			return o, fmt.Errorf("--notify: %w", err)
		}
		o.Webhooks = append(o.Webhooks, w)
	}
	if len(o.Webhooks) == 0 && (c.NotifySecret != "" || c.NotifyProxy != "") {
		return o, errors.New("--notify-secret and --notify-proxy are for --notify: give that, too")
	}
	if o.Proxy, err = notify.ParseProxy(c.NotifyProxy); err != nil {
		return o, fmt.Errorf("--notify-proxy: %w", err)
	}
	if c.NotifySecret != "" {
		content, _, err := privatefile.Read(c.NotifySecret)
		if err == nil {
			o.Secret, err = notify.Secret(content)
		}
		if err != nil {
			return o, fmt.Errorf("--notify-secret: %w", err)
		}
	}
	return o, nil
}

// newNotifier makes the notifier, which does nothing without webhooks.
func (s *service) newNotifier() *notify.Notifier {
	o := s.config.Notices
	o.Console, o.Log, o.Metrics = s.url(), s.log, s.metrics
	o.Deliveries = func(id string) notify.Deliveries { return s.leases.Deliveries(id) }
	o.Conditions = func() []notify.Notice {
		w, err := s.archive.Waiting()
		if err != nil || w.Oldest.IsZero() || time.Since(w.Oldest) < evidenceWaits {
			return nil
		}
		return []notify.Notice{notify.OfWaiting(s.launcherID, w.Bundles, w.Oldest, o.Console)}
	}
	return notify.New(o)
}

// checkWebhooks sends each webhook a notice that says that it is a test.
func (c RunConfig) checkWebhooks(ctx context.Context) (string, error) {
	o := c.Notices
	o.Console, o.Metrics = c.scheme()+"://"+dialable(c.Listen), prometheus.NewRegistry()
	if at := c.advertised(); at != "" {
		o.Console = at
	}
	n := notify.New(o)
	var errs error
	for _, w := range o.Webhooks {
		errs = errors.Join(errs, n.Try(ctx, w))
	}
	return fmt.Sprintf("%d webhooks took a notice that says that it is a test", len(o.Webhooks)), errs
}
