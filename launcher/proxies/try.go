package proxies

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// nowhere is a target that no proxy can reach: the domain is kept free for that.
const nowhere = "leasehold-doctor.invalid:443"

// Try connects to the server and shows it the credentials, with a wish for a target that there
// is not. So nobody else is asked anything. It returns an error where the server does not
// answer, or refuses the credentials.
func (p *Proxy) Try(ctx context.Context) error {
	if err := p.Check(ctx); err != nil {
		return err
	}
	c, err := p.dial(ctx, &net.Dialer{}, nowhere)
	switch {
	case err == nil: // a server that says yes before it looks
		return c.Close()
	case isRefusal(err):
		return fmt.Errorf("proxy %s: %w", p, errCredentials)
	case ctx.Err() != nil:
		return fmt.Errorf("proxy %s does not answer a request: %w", p, errors.Join(ctx.Err(), err))
	}
	return nil // that it cannot reach the target is as it should be
}
