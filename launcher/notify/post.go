package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 4 << 10

// newClient returns a client that goes through the proxy, or straight if it is nil, and follows no
// redirect: what is sent is for nobody else.
func newClient(proxy *url.URL) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	if proxy != nil {
		transport.Proxy = http.ProxyURL(proxy)
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// post makes one try. The error says nothing of the webhook's URL but its host.
func (n *Notifier) post(ctx context.Context, w Webhook, notice Notice) (asked time.Duration, err error) {
	body, err := notice.body(w.form)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url.String(), bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("%s: no request can be made", w)
	}
	r.Header.Set("Content-Type", "application/json")
	sign(r.Header, n.o.Secret, notice.ID, n.now(), body)
	answer, err := n.client.Do(r)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok { // it has the whole URL
			err = failed.Err
		}
		return 0, fmt.Errorf("%s: %w", w, err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxAnswer)) // so that the connection can be used again
	switch {
	case answer.StatusCode >= 200 && answer.StatusCode < 300:
		return 0, nil
	case answer.StatusCode >= 300 && answer.StatusCode < 400:
		return 0, fmt.Errorf("%s: answered %s: redirects are not followed: give the URL to which it leads", w, answer.Status)
	}
	return retryAfter(answer.Header.Get("Retry-After"), n.now()), fmt.Errorf("%s: answered %s, want 200 to 299", w, answer.Status)
}

// sign sets the headers of standardwebhooks.com.
func sign(h http.Header, secret []byte, id string, now time.Time, body []byte) {
	at := strconv.FormatInt(now.Unix(), 10)
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", at)
	if len(secret) == 0 {
		return
	}
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
	h.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// retryAfter is how long an answer asks to wait: a number of seconds or a date; zero if it says
// nothing.
func retryAfter(value string, now time.Time) time.Duration {
	var asked time.Duration
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		asked = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		asked = at.Sub(now)
	}
	return min(max(asked, 0), maxAsked)
}
