package proxies

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// nowhere is a target that no proxy can reach: the domain is reserved for that purpose.
const nowhere = "leasehold-doctor.invalid:443"

// Try connects to the server and shows it the credentials, by asking for a target that does not
// exist, so that no third party is contacted. It returns an error if the server does not
// answer, or refuses the credentials.
func (p *Proxy) Try(ctx context.Context) error {
	if err := p.Check(ctx); err != nil {
		return err
	}
	c, err := p.dial(ctx, &net.Dialer{}, nowhere)
	switch {
	case err == nil: // the server agrees before it looks for the target
		return c.Close()
	case isRefusal(err):
		return fmt.Errorf("proxy %s: %w", p, errCredentials)
	case ctx.Err() != nil:
		return fmt.Errorf("proxy %s does not answer a request: %w", p, errors.Join(ctx.Err(), err))
	}
	return nil // it is right that the server cannot reach the target
}
