package natsd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
)

const (
	dialTime      = 5 * time.Second
	reconnectWait = 250 * time.Millisecond
	// pingInterval is the time between two pings. A connection that was lost without
	// notice is detected after twice that time.
	pingInterval = 5 * time.Second
)

// Dial connects to a NATS server, or to one of a comma-separated list, with the options
// that leases need: a write is never kept for later, and a lost connection is retried
// without end. credsFile may be empty. Dial tries each address until ctx ends, for at most
// five seconds. The error names the URL without its password.
func Dial(ctx context.Context, rawURL, credsFile string, log zerolog.Logger) (*nats.Conn, error) {
	opts := connOptions(log)
	if credsFile != "" {
		if _, err := os.Stat(credsFile); err != nil {
			return nil, fmt.Errorf("nats credentials: %w: check --nats-creds", err)
		}
		opts = append(opts, nats.UserCredentials(credsFile))
	}
	wait := dialTime
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	if err := ctx.Err(); err != nil || wait <= 0 {
		return nil, fmt.Errorf("nats server %s: no time left to connect: %w", Redact(rawURL), context.Cause(ctx))
	}
	nc, err := nats.Connect(rawURL, append(opts, nats.Timeout(wait))...)
	switch {
	case err == nil:
		return nc, nil
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return nil, fmt.Errorf("nats server %s refuses the credentials: %w: check --nats-creds or the user in --nats-url", Redact(rawURL), err)
	default:
		return nil, fmt.Errorf("nats server %s cannot be reached: %w: start it, or check --nats-url", Redact(rawURL), redactErr(err))
	}
}

// connOptions are what every connection of a launcher has.
func connOptions(log zerolog.Logger) []nats.Option {
	log = log.With().Str("component", "nats").Logger()
	return []nats.Option{
		nats.Name("leasehold"),
		// No write is buffered while the server is away: it would be stored long
		// after its sender has given up.
		nats.ReconnectBufSize(-1),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectWait, reconnectWait),
		// The server may get new credentials before the clients do.
		nats.IgnoreAuthErrorAbort(),
		nats.PingInterval(pingInterval),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn().Err(err).Msg("nats connection lost")
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info().Str("url", nc.ConnectedUrlRedacted()).Msg("nats connection is back")
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			e := log.Warn().Err(err)
			if sub != nil {
				e = e.Str("subject", sub.Subject)
			}
			e.Msg("nats reports an error")
		}),
	}
}

// Redact returns the URL, or the comma-separated URLs, without passwords and
// tokens, for people.
func Redact(rawURL string) string {
	urls := strings.Split(rawURL, ",")
	for i, s := range urls {
		urls[i] = redactOne(strings.TrimSpace(s))
	}
	return strings.Join(urls, ",")
}

// redactOne is Redact for one URL.
func redactOne(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Host == "" {
		// Without a scheme, all that stands before the last @ could be a secret.
		if i := strings.LastIndexByte(s, '@'); i >= 0 {
			return "***" + s[i:]
		}
		return s
	}
	if u.User != nil {
		if _, secret := u.User.Password(); secret {
			u.User = url.UserPassword(u.User.Username(), "***")
		} else {
			u.User = url.User("***") // a token
		}
	}
	return strings.ReplaceAll(u.String(), "%2A", "*")
}

// errNotURL replaces a parse error, which quotes what could be a password.
var errNotURL = errors.New("not a URL of the form nats://host:port")

// redactErr returns err, or errNotURL in place of a parse error.
func redactErr(err error) error {
	var parse *url.Error
	if errors.As(err, &parse) {
		return errNotURL
	}
	return err
}
