package people

import (
	"context"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// Ask asks for a person on behalf of a session's worker, and waits for the answer.
func (p *Service) Ask(ctx context.Context, sessionID string, a api.AskPerson) (api.Answer, error) {
	s, err := p.workers.Writable(ctx, sessionID, a.Token, "ask")
	if err != nil {
		return api.Answer{}, err
	}
	return s.Asks().Ask(ctx, a)
}

// TakeOver gives a session to a person.
func (p *Service) TakeOver(ctx context.Context, sessionID string, t api.TakeOver) (api.Session, error) {
	s, err := p.workers.Writable(ctx, sessionID, t.Token, "take over")
	if err != nil {
		return api.Session{}, err
	}
	err = s.People().TakeOver(principal.Of(ctx), t)
	return s.Show(), err
}

// HandBack lets the worker of a session that a person took over go on.
func (p *Service) HandBack(ctx context.Context, sessionID string, h api.HandBack) (api.Session, error) {
	s, err := p.workers.Writable(ctx, sessionID, h.Token, "hand back")
	if err != nil {
		return api.Session{}, err
	}
	err = s.People().HandBack(principal.Of(ctx), h)
	return s.Show(), err
}
