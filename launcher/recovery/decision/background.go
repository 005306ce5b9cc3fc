package decision

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"leasehold/checkpoint"
)

// PollingFrom is from how many of the same on requests count as polling.
const PollingFrom = 3

// background tells which of a session's unsafe requests the pages sent by
// themselves, so that nobody has to be asked about them:
//
//   - a report: what a link's ping and the browser itself send. No page decides what
//     is in it;
//   - a beacon (navigator.sendBeacon), whose answer no page can read, if nobody had
//     done anything on the page, or its URL says that it counts: what was typed may be
//     saved by a beacon, too;
//   - what goes to a collector that is known to everybody;
//   - polling: a POST of a script that the page sent before anybody had done
//     anything on it, and that it sent again, the same to the byte, although it had
//     been answered, until there were three; and those after them, but for what comes
//     of a gesture. What is tried until it succeeds is not polling.
//
// None counts where its URL is sensitive. A request that says less of itself than
// these rules ask for is no background; nor is a PUT, PATCH or DELETE, a form, or a
// message on a websocket, ever.
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
		switch e.Type {
		case "CSPViolationReport":
			return true
		case "Ping":
			return e.Unprompted || e.Name == checkpoint.LinkPing || counts(e.URL) || collector(e.URL)
		case "XHR", "Fetch":
			return polled[e.Group] && e.Unprompted && !e.Gesture || collector(e.URL)
		}
		return false
	}
}

// harmless tells which requests are of a kind that the profile's owner declared to
// change nothing, when they were sent and still, and are in no sensitive place.
func harmless(t Task) func(checkpoint.Entry) bool {
	return func(e checkpoint.Entry) bool {
		return e.Declared != "" && slices.Contains(t.Harmless, e.Declared) && !e.Sensitive && !SensitiveURL(e.URL, t)
	}
}

// countingWords are those by which the URL of a beacon says that it counts what
// visitors do, in its path or as a name of its host.
var countingWords = set("analytics", "beacon", "beacons", "collect", "metrics", "pixel", "rum", "stats", "telemetry", "vitals")

func counts(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(append(words(u.Path), strings.Split(u.Hostname(), ".")...), func(w string) bool { return countingWords[w] })
}

// collectors take nothing but what pages count or report of themselves, by their
// operators' own documents: a host (with a dot before it, any below), and how the
// path begins.
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
