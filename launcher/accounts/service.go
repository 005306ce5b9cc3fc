// Package accounts finds out whether the accounts of profiles are signed in, signs them in, and has what is
// known of their sites.
package accounts

import (
	"sync"

	"leasehold/launcher/accountcheck"
	"leasehold/launcher/host"
	"leasehold/launcher/profiles"
	"leasehold/launcher/recovery/table"
	"leasehold/launcher/secrets"
)

// Options are what only the accounts need.
type Options struct {
	Checker *accountcheck.Checker
	// Secrets reads those with which accounts are signed in; nil: there are none.
	Secrets    func() (*secrets.Set, error)
	ReviewWhen []table.Caution // more facts that send a profile to a person
}

// Service is about the accounts of a host's profiles. Its methods may be called concurrently.
type Service struct {
	host     *host.Host
	profiles *profiles.Service
	o        Options

	replaying sync.Mutex // held while incidents are decided again
}

// New returns the service.
func New(h *host.Host, records *profiles.Service, o Options) *Service {
	return &Service{host: h, profiles: records, o: o}
}
