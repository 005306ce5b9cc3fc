package findings

import (
	"net/url"

	"leasehold/checkpoint"
	"leasehold/launcher/recovery/table"
)

// SensitiveStep tells whether a person has to decide after this step.
func SensitiveStep(e checkpoint.Entry, t Task) bool {
	return sensitivePlace([]checkpoint.Entry{e}, nil, t) != ""
}

// SensitiveFrame tells whether a person has to decide after this frame was open inside a page.
// A frame of the page's own site, or of a site on which the task is expected, is judged like a
// page. The words in the URL of another site's frame (a captcha, a payment widget, an
// advertisement) say nothing about the account, so only one of the task's patterns makes it
// sensitive. What the frame sends is seen and judged all the same. Both URLs have to be the
// browser's own, not redacted ones.
func SensitiveFrame(frame, page string, t Task) bool {
	u, err := url.Parse(frame)
	if err != nil || u.Hostname() == "" {
		return false // about:blank, data: and the like
	}
	if Site(frame) != Site(page) && inDomains(frame, t.Domains()).Answer != table.Yes {
		return patterned(frame, t)
	}
	return SensitiveURL(frame, t)
}

func patterned(raw string, t Task) bool {
	for _, pattern := range t.SensitiveURLs {
		if pattern != "" && matches(pattern, raw) {
			return true
		}
	}
	return false
}
