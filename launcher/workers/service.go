// Package workers is for those who drive sessions: they connect, report what they do, handle tabs, and end.
package workers

import "leasehold/launcher/host"

// Service is for the workers of a host's sessions. Its methods may be called concurrently.
type Service struct{ host *host.Host }

// New returns the service.
func New(h *host.Host) *Service { return &Service{h} }
