package recovery

import (
	"net/http"

	"leasehold/checkpoint"
)

// pollingFrom is from how many of the same on requests count as polling.
const pollingFrom = 3

// background tells which of a session's unsafe requests the pages sent by
// themselves, so that nobody has to be asked about them:
//
//   - a beacon: what navigator.sendBeacon, a link's ping or the browser's own
//     reports send. A page cannot read the answer, so nothing that somebody waits
//     for is done by one;
//   - polling: a POST of a script that the page sent before anybody had done
//     anything on it, and then again, the same to the byte, until there were three.
//     What a worker caused is not among them: its first is prompted.
//
// Neither counts where its URL is sensitive. A request that says less of itself
// than these rules ask for is no background; nor is a PUT, PATCH or DELETE, a
// form, or a message on a websocket, ever.
func background(sent []checkpoint.Entry, t Task) func(checkpoint.Entry) bool {
	polled := map[string]bool{}
	for _, e := range sent {
		if e.Group != "" && e.Repeat >= pollingFrom {
			polled[e.Group] = true
		}
	}
	return func(e checkpoint.Entry) bool {
		if e.Method != http.MethodPost || e.Sensitive || SensitiveURL(e.URL, t) {
			return false
		}
		switch e.Type {
		case "Ping", "CSPViolationReport":
			return true
		case "XHR", "Fetch":
			return polled[e.Group] && e.Unprompted
		}
		return false
	}
}

// split tells the requests that count from those that do not.
func split(sent []checkpoint.Entry, bare func(checkpoint.Entry) bool) (counted, quiet []checkpoint.Entry) {
	for _, e := range sent {
		if bare(e) {
			quiet = append(quiet, e)
		} else {
			counted = append(counted, e)
		}
	}
	return counted, quiet
}
