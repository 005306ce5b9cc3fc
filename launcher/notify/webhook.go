package notify

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"

	"leasehold/internal/privatefile"
	"leasehold/launcher/principal"
)

// The forms of a message.
const (
	FormJSON = "json"
	// FormText is what Slack, Mattermost and the connectors of Teams take.
	FormText = "text"
	// FormCard is what a workflow of Teams takes.
	FormCard = "card"
)

// Webhook is where notices are sent.
type Webhook struct {
	url      *url.URL
	form     string
	events   []string
	profiles principal.Patterns
	// id is the same for all launchers that are configured with this webhook.
	id string
}

// Parse reads a webhook as it is configured: a URL, whose fragment says in which form it takes
// notices, and which: https://hooks.example/x#form=text&event=manual_review&profile=shop_*. A URL
// that begins with file: names a private file with the URL itself in it.
func Parse(raw string) (Webhook, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return Webhook{}, errors.New("want a URL: this is none") // the error would show it
	}
	w := Webhook{form: FormJSON, events: usual, profiles: principal.EveryProfile, id: fmt.Sprintf("%x", sha256.Sum256([]byte(raw)))[:16]}
	options, err := url.ParseQuery(u.EscapedFragment())
	if err != nil {
		return Webhook{}, fmt.Errorf("what follows the #: %w", err)
	}
	for name, values := range options {
		switch name {
		case "form":
			w.form = values[0]
		case "event":
			w.events = values
		case "profile":
			if w.profiles, err = principal.ParsePatterns(values); err != nil {
				return Webhook{}, err
			}
		default:
			return Webhook{}, fmt.Errorf("what follows the #: %q: want form, event or profile", name)
		}
	}
	if w.form != FormJSON && w.form != FormText && w.form != FormCard {
		return Webhook{}, fmt.Errorf("form=%q: want %s, %s or %s", w.form, FormJSON, FormText, FormCard)
	}
	for _, pattern := range w.events {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return Webhook{}, fmt.Errorf("event=%q: want a notice's name, with * for any characters", pattern)
		}
	}
	u.Fragment, u.RawFragment = "", ""
	w.url, err = fromFile(u)
	return w, err
}

// ParseProxy reads the URL of the proxy through which notices are sent; "": none.
func ParseProxy(raw string) (*url.URL, error) {
	if raw == "" {
		return nil, nil
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("want a URL: this is none")
	}
	return fromFile(u)
}

// fromFile is a URL, or the one in the file that it names, and that has to be of HTTP.
func fromFile(u *url.URL) (*url.URL, error) {
	if u.Scheme == "file" {
		b, _, err := privatefile.Read(u.Path)
		if err != nil {
			return nil, err
		}
		in, err := url.Parse(strings.TrimSpace(string(b)))
		if err != nil {
			return nil, fmt.Errorf("%s: want one line with a URL", u.Path)
		}
		u = in
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%s://...: want https://, http://, or file:// for a file with such a URL", u.Scheme)
	}
	return u, nil
}

// Secret is the key in the content of a file: as it is, or in base64 after "whsec_".
func Secret(content []byte) ([]byte, error) {
	text := strings.TrimSpace(string(content))
	key, err := []byte(text), error(nil)
	if encoded, ok := strings.CutPrefix(text, "whsec_"); ok {
		key, err = base64.StdEncoding.DecodeString(encoded)
	}
	if err != nil || len(key) < 16 {
		return nil, errors.New("want a secret of 16 bytes or more, or one in base64 after whsec_")
	}
	return key, nil
}

// String names the webhook in logs. The rest of its URL may be a secret.
func (w Webhook) String() string { return w.url.Scheme + "://" + w.url.Host }

func (w Webhook) wants(n Notice) bool {
	if n.ProfileID != "" && !w.profiles.Match(n.ProfileID) {
		return false
	}
	for _, pattern := range w.events {
		if ok, _ := path.Match(pattern, n.Name); ok {
			return true
		}
	}
	return false
}
