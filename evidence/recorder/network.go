package recorder

import (
	"encoding/json"
	"time"

	"leasehold/checkpoint/ledger"
)

// NetworkPart is the name of the part that Network makes, of kind
// evidence.KindNetwork.
const NetworkPart = "network.json"

// RequestEntry is one request in the part. A redirect is a request of its own.
type RequestEntry struct {
	At         time.Time `json:"at"`
	LeaseToken uint64    `json:"lease_token"`
	Method     string    `json:"method"`
	URL        string    `json:"url"`
	Type       string    `json:"type,omitempty"` // as Chrome names it: Document, XHR, ...
	// Status is zero as long as there is no answer.
	Status int `json:"status"`
	// Bytes is the number of bytes that came over the network.
	Bytes int64 `json:"bytes"`
	// Failed is Chrome's name of the error; empty if there was none.
	Failed string `json:"failed,omitempty"`
}

// Network makes the part: {"total","dropped","entries"}, oldest first. It has no header, cookie or
// body, and no value in a URL. total is the number of requests that there were.
func Network(requests []ledger.Hop, total int) []byte {
	var entries []RequestEntry
	for _, r := range requests {
		if e, ok := requestEntry(r); ok {
			entries = append(entries, e)
		}
	}
	return encodePart(total, entries)
}

// requestEntry makes an entry of a request's events; false if the first one is not what Chrome sends.
func requestEntry(r ledger.Hop) (e RequestEntry, ok bool) {
	var sent, redirected, answered, ended ledger.Params
	if json.Unmarshal(r.Sent, &sent) != nil {
		return e, false
	}
	e = RequestEntry{
		At: r.At.UTC(), LeaseToken: r.Token, Method: cleanWord(sent.Request.Method), URL: cleanURL(sent.Request.URL), Type: cleanWord(sent.Type),
	}
	if json.Unmarshal(r.Redirected, &redirected) == nil && redirected.RedirectResponse != nil {
		e.Status, e.Bytes = redirected.RedirectResponse.Status, int64(redirected.RedirectResponse.Bytes)
	}
	if json.Unmarshal(r.Answered, &answered) == nil {
		e.Status, e.Bytes = answered.Response.Status, int64(answered.Response.Bytes)
	}
	switch {
	case json.Unmarshal(r.Ended, &ended) != nil:
	case !r.Failed:
		e.Bytes = int64(ended.Bytes)
	case ended.Canceled:
		e.Failed = "canceled"
	default:
		e.Failed = cleanText(ended.ErrorText)
	}
	return e, true
}
