package natsd

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
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
	// answerLen is how many messages may wait in a subscription whose reader takes them one by one:
	// four times what a server answers to one question. Each subscription has that much room at
	// once, whatever comes; nats.go's own length is 512 KiB of it.
	answerLen = 4096
)

// Target is a NATS server of the user's own, or a cluster.
type Target struct {
	// URL is the URL of a server, or the URLs of several, separated by commas.
	URL string
	// Creds is a file with credentials: a user's JWT and seed, or only the seed of an nkey. CA
	// is a file with the certificates (PEM) of the authorities that sign the servers'
	// certificates; if it is empty, the system's authorities count. Both may be empty.
	Creds, CA string
}

// Dial connects to the target with the options that leases need: a write is never kept for
// later, and a lost connection is retried without end. It tries each address until ctx ends,
// for at most five seconds. If the caller's time was the shorter one, ctx has ended when the error says so.
// Errors name the URL without its password.
func Dial(ctx context.Context, to Target, log zerolog.Logger, more ...nats.Option) (*nats.Conn, error) {
	opts, err := to.options(log)
	if err != nil {
		return nil, err
	}
	wait := dialTime
	end, bounded := ctx.Deadline()
	if bounded {
		wait = min(wait, time.Until(end))
	}
	shown := Redact(to.URL)
	var nc *nats.Conn
	if wait > 0 && ctx.Err() == nil {
		if nc, err = nats.Connect(to.URL, append(append(opts, nats.Timeout(wait)), more...)...); err == nil {
			return nc, nil
		}
	}
	if bounded && !time.Now().Before(end) {
		<-ctx.Done() // its timer may be later than that of the connection
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("nats server %s: no time left to connect: %w", shown, context.Cause(ctx))
	}
	var unknown x509.UnknownAuthorityError
	var invalid *tls.CertificateVerificationError
	var parsing *url.Error
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return nil, fmt.Errorf("nats server %s refuses the credentials: %w: check --nats-creds or the user in --nats-url; the NATS inside a sidecar serves the sidecar's user, root, and who shows a token", shown, err)
	case errors.As(err, &unknown):
		return nil, fmt.Errorf("nats server %s: %w: give the certificate of its signer with --nats-ca", shown, err)
	case errors.As(err, &invalid), errors.Is(err, nats.ErrSecureConnRequired), errors.Is(err, nats.ErrSecureConnWanted), errors.As(err, &parsing):
		return nil, fmt.Errorf("nats server %s cannot be used: %w: check --nats-url", shown, redactErr(err))
	default:
		return nil, fmt.Errorf("nats server %s %w: %w: start it, or check --nats-url", shown, errAway, err)
	}
}

// errAway is part of an error after which the server may still come.
var errAway = errors.New("cannot be reached")

// Await is Dial for a server that may be starting: while it cannot be reached, Await tries again until ctx ends.
// A server that refuses the connection is not asked again.
func Await(ctx context.Context, to Target, log zerolog.Logger, more ...nats.Option) (*nats.Conn, error) {
	var away error // the last time
	for {
		nc, err := Dial(ctx, to, log, more...)
		switch {
		case err == nil:
			return nc, nil
		case away != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
			return nil, away
		case !errors.Is(err, errAway):
			return nil, err
		case away == nil:
			log.Warn().Str("component", "nats").Err(err).Msg("waiting for NATS")
		}
		away = err
		select {
		case <-time.After(reconnectWait):
		case <-ctx.Done():
		}
	}
}

func (t Target) options(log zerolog.Logger) ([]nats.Option, error) {
	opts := connOptions(log)
	if t.CA != "" {
		if _, err := os.Stat(t.CA); err != nil {
			return nil, fmt.Errorf("nats certificates: %w: check --nats-ca", err)
		}
		opts = append(opts, nats.RootCAs(t.CA))
	}
	if t.Creds == "" {
		return opts, nil
	}
	b, err := os.ReadFile(t.Creds)
	if err != nil {
		return nil, fmt.Errorf("nats credentials: %w: check --nats-creds", err)
	}
	defer clear(b)
	if bytes.Contains(b, []byte("BEGIN NATS USER JWT")) {
		return append(opts, nats.UserCredentials(t.Creds)), nil
	}
	seed, err := nats.NkeyOptionFromSeed(t.Creds)
	if err != nil {
		return nil, fmt.Errorf("nats credentials in %s: want a file with a user's JWT and seed, or with the seed of an nkey: %w: check --nats-creds", t.Creds, err)
	}
	return append(opts, seed), nil
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
		nats.SyncQueueLen(answerLen),
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
// API tokens, for people.
func Redact(rawURL string) string {
	urls := strings.Split(rawURL, ",")
	for i, s := range urls {
		urls[i] = redactOne(strings.TrimSpace(s))
	}
	return strings.Join(urls, ",")
}

func redactOne(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Host == "" {
		// Without a scheme, everything before the last @ could be a secret.
		if i := strings.LastIndexByte(s, '@'); i >= 0 {
			return "***" + s[i:]
		}
		return s
	}
	if u.User != nil {
		if _, secret := u.User.Password(); secret {
			u.User = url.UserPassword(u.User.Username(), "***")
		} else {
			u.User = url.User("***") // an API token
		}
	}
	return strings.ReplaceAll(u.String(), "%2A", "*")
}

// errNotURL replaces a parse error, which quotes what could be a password.
var errNotURL = errors.New("not a URL of the form nats://host:port")

// redactErr returns err, or errNotURL in place of a parse error.
func redactErr(err error) error {
	if _, ok := errors.AsType[*url.Error](err); ok {
		return errNotURL
	}
	return err
}
