package findings

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"leasehold/checkpoint"
	"leasehold/launcher/recovery/table"
)

// This file judges the account's session by its cookies. Sites renew what proves a session: a
// sliding session gets a later expiry, a rotating one another value with each page. None of
// that is a loss. A session is lost if such a cookie is gone. It has become another account's
// if the site set a new value in the answer to what a sign-in consists of: an unsafe request
// after something was typed. A new value in a redirect may be either, unless the cookie also
// gets new values in usual answers.

// accountFacts answers the questions that the cookies of a session can answer.
func accountFacts(s checkpoint.Summary) table.Inspection {
	return table.Inspection{
		sessionKept(table.SessionKept, s, s.Cookies),
		sessionKept(table.SessionKeptSinceSafe, s, s.CookiesSince),
		asked(table.CookiesGiven, s.Cookies, checkpoint.CookiesGiven, "the worker did not ask for the account's cookies; what its pages send and get, Chrome shows to every client that listens"),
		asked(table.CookiesWritten, s.Cookies, checkpoint.CookiesWritten, "the worker wrote no cookie by itself"),
	}
}

// asked is the fact whether the worker sent a command that concerns cookies.
func asked(name string, entries []checkpoint.Entry, what checkpoint.CookieEvent, otherwise string) table.Fact {
	f := table.Fact{Name: name, Answer: table.No, How: otherwise}
	n := uint64(0)
	for _, e := range entries {
		if e.Cookie != nil && e.Cookie.What == what {
			n += e.Times()
			f.Answer, f.How = table.Yes, fmt.Sprintf("%d seen, the last by %s", n, e.Method)
		}
	}
	return f
}

// sessionKept is the fact whether the session that the cookies prove is still the account's. It
// considers entries, which are those of the session or the latest of them.
func sessionKept(name string, s checkpoint.Summary, entries []checkpoint.Entry) table.Fact {
	if !s.Began && len(s.Cookies) == 0 {
		return table.Fact{Name: name, Answer: table.Yes, How: "no page was ever open"}
	}
	rotates := rotating(s.Cookies)
	cookies := map[string]*cookieFate{}
	var order []*cookieFate
	read, unread := false, "at the end they could not be read"
	for _, e := range entries {
		c := e.Cookie
		switch {
		case c == nil || c.What == checkpoint.CookiesGiven || c.What == checkpoint.CookiesWritten:
		case c.What == checkpoint.CookiesRead || c.What == checkpoint.CookiesUnread:
			read, unread = c.What == checkpoint.CookiesRead, cmp.Or(e.Text, unread)
		case visited(c.Domain, s.Pages):
			fate := cookies[c.Cookie]
			if fate == nil {
				fate = &cookieFate{}
				cookies[c.Cookie] = fate
				order = append(order, fate)
			}
			fate.take(e, rotates[c.Cookie])
		}
	}
	for _, want := range []table.Answer{table.No, table.Unknown} {
		for _, fate := range order {
			if fate.answer() == want {
				return table.Fact{Name: name, Answer: want, How: fate.how}
			}
		}
	}
	if !read {
		return table.Fact{Name: name, Answer: table.Unknown, How: "the cookies are not known: " + unread}
	}
	if len(order) > 0 {
		return table.Fact{Name: name, Answer: table.Yes, How: fmt.Sprintf("%d cookies that may carry the account's identity were renewed, in the usual way; none was dropped or exchanged", len(order))}
	}
	return table.Fact{Name: name, Answer: table.Yes, How: "no cookie that may carry the account's identity was dropped or exchanged"}
}

// rotating are the cookies to which the site gave another value in a usual answer.
func rotating(entries []checkpoint.Entry) map[string]bool {
	all := map[string]bool{}
	for _, e := range entries {
		if c := e.Cookie; c != nil && c.What == checkpoint.CookieReplaced && usuallyAnswered(c) {
			all[c.Cookie] = true
		}
	}
	return all
}

// usuallyAnswered tells whether a cookie was replaced in the way in which sites renew a session:
// with an ordinary answer, and not after something was typed and sent.
func usuallyAnswered(c *checkpoint.CookieChange) bool {
	return c.By == checkpoint.BySite && !c.Typed && (c.Status >= 200 && c.Status < 300 || c.Status == 304)
}

// Renewed tells whether a cookie was replaced in a way that says nothing about the account, whatever happens to
// it otherwise.
func Renewed(c *checkpoint.CookieChange) bool {
	return c.What == checkpoint.CookieReplaced &&
		(c.Subject == checkpoint.SubjectSame || c.Subject != checkpoint.SubjectOther && (c.By == checkpoint.ByScript || usuallyAnswered(c)))
}

type cookieFate struct {
	gone               bool
	exchanged, unclear bool // it was, at some point
	how                string
}

func (f *cookieFate) answer() table.Answer {
	switch {
	case f.gone || f.exchanged:
		return table.No
	case f.unclear:
		return table.Unknown
	}
	return table.Yes
}

// take takes in the next thing that happened to the cookie. rotates says that its site gives it
// new values in usual answers, too.
func (f *cookieFate) take(e checkpoint.Entry, rotates bool) {
	c := e.Cookie
	told := ""
	switch c.What {
	case checkpoint.CookieDropped:
		if c.By == checkpoint.ByExpiry && c.Kept {
			return // the site has another such cookie
		}
		f.gone, told = true, "dropped"
	case checkpoint.CookieSetAgain:
		f.gone = false
		if c.Same || c.Subject == checkpoint.SubjectSame {
			return
		}
		f.exchanged, told = true, "dropped, and set again with another value"
	case checkpoint.CookieReplaced:
		switch {
		case Renewed(c):
			return
		case c.Subject == checkpoint.SubjectOther:
			f.exchanged, told = true, "replaced by one of another account"
		case c.By != checkpoint.ByWorker && rotates:
			return
		case c.By == checkpoint.ByWorker, c.Typed, c.Status >= 400 && c.Status < 500:
			f.exchanged, told = true, "replaced"
		default:
			f.unclear, told = true, "replaced: renewed, or exchanged"
		}
	default:
		return
	}
	f.how = fmt.Sprintf("a cookie of %s that may carry the account's identity was %s %s", c.Domain, told, byWhom(e))
}

// byWhom says in words who changed a cookie.
func byWhom(e checkpoint.Entry) string {
	switch c := e.Cookie; c.By {
	case checkpoint.BySite:
		return strings.TrimSpace(fmt.Sprintf("by the site, in answer %d to %s %s", c.Status, e.Method, e.URL))
	case checkpoint.ByScript:
		return "by a script"
	case checkpoint.ByWorker:
		return "by the worker, over CDP"
	case checkpoint.ByExpiry:
		return "since its time was over"
	}
	return "by nobody that was seen"
}

// visited tells whether a page of the cookie's site was open. What a site does with its own
// cookies in a frame, or only to count visits, says nothing about the account.
func visited(domain string, pages []checkpoint.Entry) bool {
	site := Site("http://" + strings.TrimPrefix(domain, "."))
	return slices.ContainsFunc(pages, func(p checkpoint.Entry) bool { return p.Kind == checkpoint.KindURL && Site(p.URL) == site })
}
