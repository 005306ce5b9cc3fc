package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"leasehold/internal/id"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// A referral sends a caller who showed an API token here to a profile's home on another
// launcher. This launcher tells the home that the token was shown, and for which session. The
// home answers with a secret: the path of one websocket, which can be used once within half a
// minute, for this session and in the name of the principal to whom the token belongs at the
// home. So a referral gives nobody more than the token itself would.

const (
	// referralLife is how long a client has to follow the redirect.
	referralLife = 30 * time.Second
	// maxReferrals bounds how many unused referrals of one principal are kept. Beyond it their
	// oldest is dropped.
	maxReferrals = 1024
)

// Carrier carries questions between launchers.
type Carrier interface {
	// Call asks a launcher, and returns its answer.
	Call(ctx context.Context, launcherID string, question []byte) ([]byte, error)
	// Answer makes answer reply to every Call of this launcher, until stop is called.
	Answer(launcherID string, answer func(question []byte) []byte) (stop func(), err error)
}

// Referrals are one launcher's: it asks other launchers for referrals, and makes them for
// others.
type Referrals struct {
	launcher string
	gate     *principal.Gate
	carrier  Carrier
	log      zerolog.Logger

	mu     sync.Mutex
	unused shelf
}

// NewReferrals returns the referrals of a launcher. It answers other launchers after Listen.
func NewReferrals(launcherID string, gate *principal.Gate, carrier Carrier, log zerolog.Logger) *Referrals {
	return &Referrals{launcher: launcherID, gate: gate, carrier: carrier, log: log, unused: shelf{}}
}

// Listen answers other launchers until stop is called.
func (r *Referrals) Listen() (stop func(), err error) { return r.carrier.Answer(r.launcher, r.answer) }

// wish is a launcher's request for a referral.
type wish struct {
	// Home is the launcher that is asked, From the one that asks.
	Home string `json:"home"`
	From string `json:"from"`
	// Profile and Query name the session, as in a one-shot URL.
	Profile string `json:"profile"`
	Query   string `json:"query"`
}

// vouched is a wish with the MAC that proves that the token was shown.
type vouched struct {
	Wish []byte `json:"wish"`
	MAC  []byte `json:"mac"`
}

// reply has the secret, encrypted so that only a launcher that knows the token's hash can read
// it, or says why there is none.
type reply struct {
	Sealed  []byte `json:"sealed,omitempty"`
	Problem string `json:"problem,omitempty"`
}

// ask asks the home for a referral and returns its secret.
func (r *Referrals) ask(ctx context.Context, home string, token principal.TokenHash, m api.Manifest) (string, error) {
	w, err := json.Marshal(wish{Home: home, From: r.launcher, Profile: m.ProfileID, Query: m.Query().Encode()})
	if err != nil {
		return "", err
	}
	mac := token.Vouch(w)
	question, err := json.Marshal(vouched{w, mac})
	if err != nil {
		return "", err
	}
	b, err := r.carrier.Call(ctx, home, question)
	if err != nil {
		return "", err
	}
	var got reply
	if err := json.Unmarshal(b, &got); err != nil {
		return "", fmt.Errorf("launcher %s answers what is no reply: %w", home, err)
	}
	if got.Problem != "" {
		return "", fmt.Errorf("launcher %s: %s", home, clip(got.Problem))
	}
	secret, err := token.Unseal(got.Sealed, mac)
	return string(secret), err
}

// answer makes a referral for another launcher.
func (r *Referrals) answer(question []byte) []byte {
	sealed, err := r.make(question, time.Now())
	out := reply{Sealed: sealed}
	if err != nil {
		r.log.Warn().Err(err).Msg("another launcher gets no referral")
		out = reply{Problem: err.Error()}
	}
	b, err := json.Marshal(out)
	if err != nil {
		r.log.Error().Err(err).Msg("reply to another launcher cannot be encoded")
	}
	return b
}

var errNobodysToken = errors.New("the token that was shown is nobody's there: give both sidecars the same --tokens")

func (r *Referrals) make(question []byte, now time.Time) ([]byte, error) {
	var v vouched
	var w wish
	if err := json.Unmarshal(question, &v); err != nil {
		return nil, fmt.Errorf("want a wish with a MAC: %w", err)
	}
	who, token, ok := r.gate.Vouched(v.Wish, v.MAC)
	if !ok {
		return nil, errNobodysToken
	}
	if err := json.Unmarshal(v.Wish, &w); err != nil {
		return nil, fmt.Errorf("want a wish: %w", err)
	}
	if w.Home != r.launcher {
		return nil, fmt.Errorf("this is launcher %s, not %s", r.launcher, clip(w.Home))
	}
	query, err := url.ParseQuery(w.Query)
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	m, err := api.ManifestFromQuery(w.Profile, query)
	m.OneShot = true
	if err = errors.Join(err, m.Check()); err != nil {
		return nil, err
	}
	secret := r.keep(ticket{who: who, manifest: m, apiToken: token, expires: now.Add(referralLife)}, now)
	r.log.Info().Str("principal", who.Name).Str("profile", m.ProfileID).Str("worker", m.WorkerID).Str("task", m.TaskID).
		Str("from", clip(w.From)).Str("referral", id.Mask(secret)).Msg("referral made")
	return token.Seal([]byte(secret), v.MAC), nil
}

// keep keeps a referral until it is used, and returns its secret.
func (r *Referrals) keep(t ticket, now time.Time) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unused.put(t, maxReferrals, now, func(string) bool { return false })
}

// use returns the referral with this secret, which cannot be used again after that.
func (r *Referrals) use(secret string, now time.Time) (ticket, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.unused[secret]
	delete(r.unused, secret)
	return t, ok && now.Before(t.expires)
}

// refer returns the path of a websocket at the profile's home, for a caller who showed an API
// token here. p is the refusal that names the home. A caller who asked for any profile is sent
// to the chosen one, and keeps the place in the queue.
func (c *call) refer(home string, p *api.Problem) (path string, err error) {
	if c.o.Referrals == nil {
		return "", errors.New("this sidecar has no way to ask others")
	}
	var token principal.TokenHash
	var m api.Manifest
	if c.ticket != nil {
		token, m = c.ticket.apiToken, c.ticket.manifest
	} else {
		token = principal.Hash(c.apiTokens[0])
		if m, err = c.manifest(); err != nil {
			return "", err
		}
	}
	if m.AnyProfile() {
		m.ProfileID, _ = p.More["profile_id"].(string)
		m.Labels = nil
	}
	if turn, ok := p.More["turn"].(string); ok {
		m.Turn = turn
	}
	secret, err := c.o.Referrals.ask(c.r.Context(), home, token, m)
	if err != nil {
		return "", err
	}
	c.o.Log.Info().Str("principal", c.who.Name).Str("profile", m.ProfileID).Str("home", home).Str("referral", id.Mask(secret)).Msg("caller sent on to the profile's home")
	return "/s/" + secret + "/devtools/browser/" + url.PathEscape(m.ProfileID), nil
}
