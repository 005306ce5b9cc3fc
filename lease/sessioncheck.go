package lease

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// SessionCheck says how to find out whether a profile's account is signed in: a URL to request
// by GET, and what proves that it is.
type SessionCheck struct {
	// URL is a complete http or https URL. Requesting it must not change anything; best is a
	// URL that tells a page who is signed in. A redirect is not followed.
	URL string `json:"url"`
	// Status is the status of the answer if the account is signed in; zero means 200.
	Status int `json:"status,omitempty"`
	// Text is what the answer's body contains if the account is signed in; empty: the status
	// alone proves it.
	Text string `json:"text,omitempty"`
}

// maxCheckURL and maxCheckText bound a check's URL and text, in bytes.
const (
	maxCheckURL  = 2048
	maxCheckText = 256
)

// WantStatus is the status that proves that the account is signed in.
func (c SessionCheck) WantStatus() int {
	if c.Status == 0 {
		return http.StatusOK
	}
	return c.Status
}

// Validate returns an error that says what is wrong with the check.
func (c SessionCheck) Validate() error {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || len(c.URL) > maxCheckURL:
		return fmt.Errorf("url %.200q: want a complete one, such as https://shop.example/api/me", c.URL)
	case u.User != nil:
		return errors.New("url: want one without user and password: the profile's own session is checked")
	case u.Fragment != "":
		return fmt.Errorf("url %.200q: want one without a fragment: no script of the page runs, so that it means nothing", c.URL)
	case c.Status != 0 && (c.Status < 200 || c.Status > 499):
		return fmt.Errorf("status %d: want the one that proves that the account is signed in, 200 to 499", c.Status)
	case len(c.Text) > maxCheckText:
		return fmt.Errorf("text: want at most %d bytes", maxCheckText)
	}
	return nil
}
