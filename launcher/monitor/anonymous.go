package monitor

import (
	"strings"

	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
	"leasehold/evidence/redact"
	"leasehold/launcher/recovery/findings"
)

// mayBeAnonymous tells whether only what Chrome itself added to a request can have told the site
// about the account. That is so for a request to another site than its page's, without headers of
// its own, from a page whose URL has nothing that the request could pass on. Such a request is
// anonymous if it carried no cookies while its page's document did. (An account that is not known
// by cookies is known by something else.) What a page tells its frames is not seen, and card
// companies charge without cookies: so a frame's request in a page that was used is none.
func (a *answers) mayBeAnonymous(r request, p place) bool {
	if p.frame == "" {
		if acted, _ := a.navigations.actedOn(p.session); acted {
			return false
		}
	}
	shown, known := a.documents[p.session]
	return known && !shown.secret && findings.Site(r.Request.URL) != findings.Site(p.url) && plainHeaders(r.Request.Headers)
}

// anonymous reports that a request carried nothing of the account although its page's document
// did, once both are known. Chrome may report either of them after the answer.
func anonymous(r *ledger.Request) []answer {
	page := r.Page
	if page == nil || r.Left == 0 || page.Left == 0 {
		return nil
	}
	r.Page = nil
	if r.Cookies || r.Credentials || !page.Cookies {
		return nil
	}
	return []answer{{id: r.ID, entry: checkpoint.Entry{Kind: checkpoint.KindAnswer, Anonymous: true}}}
}

// plainHeaders tells whether a request has no header into which a script can have put a
// credential. It may have only headers that the Fetch standard lets any page send to any site,
// and headers that no script can set.
func plainHeaders(headers map[string]string) bool {
	for name := range headers {
		name = strings.ToLower(name)
		if !plainHeader[name] && !strings.HasPrefix(name, "sec-") {
			return false
		}
	}
	return true
}

var plainHeader = map[string]bool{
	"accept": true, "accept-language": true, "content-language": true, "content-type": true, "range": true, // CORS-safelisted
	"accept-charset": true, "accept-encoding": true, "connection": true, "content-length": true, "date": true, "dnt": true,
	"expect": true, "host": true, "keep-alive": true, "origin": true, "referer": true, "te": true, "trailer": true,
	"transfer-encoding": true, "upgrade": true, "upgrade-insecure-requests": true, "via": true, "user-agent": true,
}

// hasSecret tells whether a URL has a part that would be redacted.
func hasSecret(raw string) bool { return redact.URL(raw) != raw }
