// Package tlsfiles serves TLS with a certificate, a key and client authorities from files, and
// reads the files again when they change.
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/rs/zerolog"

	"leasehold/internal/privatefile"
)

// Paths are those of PEM files.
type Paths struct {
	Certificate, Key string
	// ClientCA has the authorities whose clients' certificates are accepted; "" if clients are
	// not asked for one. A client may connect without a certificate.
	ClientCA string
}

// versions are those of the files that a configuration was made of.
type versions struct{ certificate, key, clientCA privatefile.Version }

type files struct {
	paths Paths
	log   zerolog.Logger

	mu     sync.Mutex
	seen   versions // as they were read last
	unread bool     // they could not be read at the last look
	config *tls.Config
}

// Config returns the configuration of a server that speaks HTTP/1.1, because a websocket needs
// the connection for itself. The files are checked at each handshake. A new version of them
// that cannot be used is logged, and the earlier one stays in use; what could not be read is read at
// the next handshake. Open connections are not touched. The error names the file, and what is wrong with it.
func Config(paths Paths, log zerolog.Logger) (*tls.Config, error) {
	f := &files{paths: paths, log: log}
	var err error
	if f.seen, err = paths.stat(); err != nil {
		return nil, err
	}
	if f.config, err = paths.load(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.current(), nil },
	}, nil
}

func (f *files) current() *tls.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := f.paths.stat()
	if err == nil && now == f.seen {
		f.unread = false
		return f.config
	}
	var next *tls.Config
	if err == nil {
		next, err = f.paths.load()
	}
	was := f.unread
	_, f.unread = errors.AsType[*fs.PathError](err)
	if err == nil {
		f.config = next
		f.log.Info().Str("path", f.paths.Certificate).Msg("TLS certificate read again")
	} else if !f.unread || !was { // once for each version
		f.log.Error().Err(err).Str("path", f.paths.Certificate).Msg("the new version of the TLS files cannot be used: the one before stays")
	}
	if !f.unread { // otherwise nobody may change them again
		f.seen = now
	}
	return f.config
}

// stat looks at the files. If one is missing, the result has nothing about it.
func (p Paths) stat() (v versions, err error) {
	if v.certificate, err = privatefile.Stat(p.Certificate); err != nil {
		return v, err
	}
	if v.key, err = privatefile.Stat(p.Key); err != nil {
		return v, err
	}
	if p.ClientCA != "" {
		v.clientCA, err = privatefile.Stat(p.ClientCA)
	}
	return v, err
}

func (p Paths) load() (*tls.Config, error) {
	certificate, err := os.ReadFile(p.Certificate)
	if err != nil {
		return nil, err
	}
	key, _, err := privatefile.Read(p.Key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", p.Certificate, p.Key, err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if p.ClientCA == "" {
		return c, nil
	}
	authorities, err := os.ReadFile(p.ClientCA)
	if err != nil {
		return nil, err
	}
	c.ClientAuth, c.ClientCAs = tls.VerifyClientCertIfGiven, x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("%s: want certificates of authorities, in PEM", p.ClientCA)
	}
	return c, nil
}
