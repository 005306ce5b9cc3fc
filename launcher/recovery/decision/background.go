package decision

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"leasehold/checkpoint"
)

// PollingFrom is the number of identical requests from which on they count as polling.
const PollingFrom = checkpoint.ManyRepeats

// background returns a function that tells which of a session's unsafe requests the pages sent
// by themselves. No person has to decide about those. They are
//
//   - reports that the browser itself sends about a page's policy, and the ping of a link. The
//     page does not decide what they contain;
//   - beacons (navigator.sendBeacon), whose answers pages cannot read, if nobody had done
//     anything on the page, or if the URL says that it counts visits. Other beacons are not
//     among them, since a page may also save typed text by a beacon;
//   - requests to a well-known collector of statistics;
//   - polling: a script's POST that the page sent before anybody had done anything on it, and
//     then repeated, byte by byte the same, although it had been answered, until there were
//     three. Later ones count as well, unless they follow from a gesture. A request that is
//     only retried until it succeeds is not polling.
//
// A request to a sensitive URL is never background. Neither is a request of which less is known
// than these rules need, nor a PUT, PATCH or DELETE, a form, or a message on a websocket.
func background(sent []checkpoint.Entry, t Task) func(checkpoint.Entry) bool {
	polled := map[string]bool{}
	for _, e := range sent {
		if e.Group != "" && e.Unprompted && e.Repeat >= PollingFrom {
			polled[e.Group] = true
		}
	}
	return func(e checkpoint.Entry) bool {
		if e.Method != http.MethodPost || e.Sensitive || SensitiveURL(e.URL, t) {
			return false
		}
		if e.Name == checkpoint.PolicyReport || e.Type == "CSPViolationReport" { // the type that Chrome used up to version 155
			return true
		}
		switch e.Type {
		case "Ping":
			return e.Unprompted || e.Name == checkpoint.LinkPing || counts(e.URL) || collector(e.URL)
		case "XHR", "Fetch":
			return polled[e.Group] && e.Unprompted && !e.Gesture || collector(e.URL)
		}
		return false
	}
}

// harmless returns a function that tells which requests the profile's owner has declared to
// change nothing. The declaration must have existed when the request was sent, and must still
// exist now. A request to a sensitive place is never harmless.
func harmless(t Task) func(checkpoint.Entry) bool {
	return func(e checkpoint.Entry) bool {
		return e.Declared != "" && slices.Contains(t.Harmless, e.Declared) && !e.Sensitive && !SensitiveURL(e.URL, t)
	}
}

// countingWords mark a beacon as one that counts what visitors do. They are looked for in the
// path of its URL, and among the parts of its host name.
var countingWords = set("analytics", "beacon", "beacons", "collect", "metrics", "pixel", "rum", "stats", "telemetry", "vitals")

func counts(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(append(words(u.Path), strings.Split(u.Hostname(), ".")...), func(w string) bool { return countingWords[w] })
}

// collectors are services that accept only statistics and reports of pages, according to their
// operators' documentation. Each entry is a host (a leading dot stands for any host below it)
// and the beginning of the path.
var collectors = []struct{ host, path string }{
	{"www.google-analytics.com", "/g/collect"}, {"region1.google-analytics.com", "/g/collect"}, {"www.google-analytics.com", "/j/collect"},
	{"analytics.google.com", "/g/collect"}, {"stats.g.doubleclick.net", "/g/collect"}, {"stats.g.doubleclick.net", "/j/collect"},
	{".clarity.ms", "/collect"},
	{".ingest.sentry.io", "/api/"}, {".ingest.us.sentry.io", "/api/"}, {".ingest.de.sentry.io", "/api/"},
	{"api.segment.io", "/v1/"}, {"api-js.mixpanel.com", "/track"}, {"api2.amplitude.com", "/2/httpapi"},
	{"browser-intake-datadoghq.com", "/api/v2/"}, {"browser-intake-datadoghq.eu", "/api/v2/"},
	{"bam.nr-data.net", "/"}, {"bam.eu01.nr-data.net", "/"}, {"cloudflareinsights.com", "/cdn-cgi/rum"},
}

func collector(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "https" || u.Port() != "" || u.User != nil {
		return false
	}
	for _, c := range collectors {
		host := u.Hostname() == c.host || c.host[0] == '.' && strings.HasSuffix(u.Hostname(), c.host)
		if host && strings.HasPrefix(u.Path, c.path) {
			return true
		}
	}
	return false
}

// split divides requests into those that count, and those for which bare returns true.
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
