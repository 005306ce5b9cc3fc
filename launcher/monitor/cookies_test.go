package monitor

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"leasehold/cdpproxy"
	"leasehold/cdpproxy/acts"
	"leasehold/checkpoint"
	"leasehold/checkpoint/ledger"
)

// cookieScript plays a script to a monitor, one line at a time, and returns the entries that
// it reports, one a line:
//
//	grant COOKIE...            the browser's cookies at the grant
//	get URL STATUS [LINE]...   a request for a document, and its answer with Set-Cookie lines
//	fetch, post, early         the same by script; by POST; with the answer reported first
//	typed                      the worker types into the page
//	clears URL                 an answer with Clear-Site-Data
//	command METHOD [writes]    a client's command on cookies
//	end COOKIE...              the browser's cookies at the end
//	fails                      they cannot be read
//
// A LINE has _ for a space. A COOKIE is NAME=VALUE@DOMAIN[+httponly][+lasting][+expired].
func cookieScript(t *testing.T, script string) string {
	t.Helper()
	var got []string
	m := direct(func(e checkpoint.Entry) {
		c := e.Cookie
		text := string(c.What)
		for _, part := range []string{string(c.By), c.Domain, e.Method, string(c.Subject)} {
			if part != "" {
				text += " " + part
			}
		}
		if c.Status != 0 {
			text += " " + strconv.Itoa(c.Status)
		}
		for what, is := range map[string]bool{" typed": c.Typed, " same": c.Same, " kept": c.Kept} {
			if is {
				text += what
			}
		}
		if b, err := json.Marshal(e); err != nil || strings.Contains(string(b), "secret") {
			t.Errorf("an entry has a name or a value of a cookie: %s %v", b, err)
		}
		got = append(got, text)
	})
	typed := false
	observe := func(method string, params map[string]any) {
		b, err := json.Marshal(params)
		if err != nil {
			t.Fatal(err)
		}
		// Chrome's order: the id first, the type near the end.
		text := strings.Replace(string(b), `"a_id"`, `"requestId"`, 1)
		now := time.Now()
		e := ledger.Event{Session: "S", Method: method, Params: json.RawMessage(text), At: now}
		m.log.take(e, func(f ledger.Fact) {
			reportAll(m.sink, m.cookies.watch.observe(f, func() bool { return typed }, func() bool { return false }, now))
		})
	}
	for i, line := range strings.Split(strings.TrimSpace(script), "\n") {
		w := strings.Fields(line)
		switch w[0] {
		case "grant":
			m.cookies.Learn(jar(w[1:]), nil)()
		case "end":
			m.cookies.Compare(jar(w[1:]), nil)
		case "fails":
			m.cookies.Compare(nil, errors.New("the browser does not answer"))
		case "typed":
			typed = true
		case "command":
			m.Traffic(cdpproxy.Traffic{Cookies: &acts.CookieCommand{Method: w[1], Reads: len(w) < 3, Writes: len(w) > 2}})
		default:
			status, headers := 200, map[string]string{"Content-Type": "text/html"}
			if w[0] == "clears" {
				headers["clear-site-data"] = `"cookies", "storage"`
			} else {
				status, _ = strconv.Atoi(w[2])
				for i, l := range w[3:] {
					if w[3+i] = strings.ReplaceAll(l, "_", " "); i == 0 {
						headers["set-cookie"] = w[3]
					} else {
						headers["set-cookie"] += "\n" + w[3+i]
					}
				}
			}
			kind, method := map[string]string{"get": "Document", "early": "Document", "clears": "Document"}[w[0]], "GET"
			if w[0] == "post" {
				method = "POST"
			}
			request := func() {
				observe(ledger.Sent, map[string]any{"a_id": fmt.Sprint(i), "request": map[string]any{"url": w[1], "method": method}, "type": kind})
			}
			if w[0] != "early" {
				request()
			}
			observe(ledger.Headers, map[string]any{"a_id": fmt.Sprint(i), "headers": headers, "statusCode": status})
			if w[0] == "early" {
				request()
			}
		}
	}
	return strings.Join(got, "\n")
}

// jar is the result of Storage.getCookies with these cookies.
func jar(cookies []string) json.RawMessage {
	list := []map[string]any{}
	for _, text := range cookies {
		options := strings.Split(text, "+")
		name, rest, _ := strings.Cut(options[0], "=")
		value, domain, _ := strings.Cut(rest, "@")
		c := map[string]any{"name": name, "value": value, "domain": domain, "path": "/", "session": true, "expires": -1}
		for _, o := range options[1:] {
			switch o {
			case "httponly":
				c["httpOnly"] = true
			case "lasting":
				c["session"], c["expires"] = false, float64(time.Now().Add(time.Hour).Unix())
			case "expired":
				c["session"], c["expires"] = false, float64(time.Now().Add(-time.Minute).Unix())
			}
		}
		list = append(list, c)
	}
	b, _ := json.Marshal(map[string]any{"cookies": list})
	return b
}

func TestWhatBecomesOfTheAccountsCookies(t *testing.T) {
	const sid, next = "sid=secret5f2b8c1e9d3a4f60", "sid=secret77aa01c2b3d4e5f6"
	const own, after = sid + "@shop.example+httponly", next + "@shop.example+httponly"
	claims := func(sub string) string {
		part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
		return part(`{"alg":"none"}`) + "." + part(`{"sub":"`+sub+`"}`) + ".x"
	}
	const url = "https://shop.example/"
	for _, tt := range []struct{ name, script, want string }{
		{"nothing happens", "grant " + own + "\nget " + url + " 200\nend " + own, "read"},
		{"it is set as it was", "grant " + own + "\nget " + url + " 200 " + sid + ";_Path=/;_HttpOnly\nend " + own, "read"},
		{"a theme and a visitor's number come and go", "grant theme=dark@shop.example v=GA1.2.1.2@.shop.example\n" +
			"get " + url + " 200 theme=light;_Path=/\nget " + url + " 302 theme=;_Path=/;_Max-Age=0\nend", "read"},
		{"the site signs out", "grant " + own + "\nget " + url + "out 302 sid=;_Path=/;_Max-Age=0\nend", "dropped site shop.example GET 302\nread"},
		{"by a date", "grant " + own + "\nget " + url + "out 302 sid=x;_Path=/;_Expires=Thu,_01_Jan_1970_00:00:00_GMT\nend", "dropped site shop.example GET 302\nread"},
		{"by an empty value", "grant " + own + "\nget " + url + "out 302 sid=;_Path=/;_HttpOnly\nend", "dropped site shop.example GET 302\nread"},
		{"by a header", "grant " + own + "\nclears https://www.shop.example/out\nend", "dropped site shop.example GET 200\nread"},
		{"another site cannot", "grant " + own + "\nget https://evil.example/ 200 sid=;_Path=/;_Max-Age=0;_Domain=shop.example\nclears https://evil.example/\nend " + own, "read"},
		{"one that was set here, lasting", "grant\nget " + url + " 200 sid=secret-a1;_Path=/;_HttpOnly;_Max-Age=86400\nget " + url + " 200 sid=;_Path=/;_Max-Age=-1\nend",
			"dropped site shop.example GET 200\nread"},
		{"a message to the next page", "grant\nget " + url + " 302 flash=secret77aa01c2b3d4e5f6;_Path=/;_HttpOnly\nget " + url + " 200 flash=;_Path=/;_Max-Age=0\nend", "read"},
		{"one that was set here, and used", "grant\nget " + url + " 200 " + sid + ";_Path=/;_HttpOnly\nget " + url + " 200\nget " + url + " 200\nget " + url + " 200 sid=;_Path=/;_Max-Age=0\nend",
			"dropped site shop.example GET 200\nread"},
		{"it rotates", "grant " + own + "\nget " + url + " 200 " + next + ";_Path=/;_HttpOnly\nend " + after, "replaced site shop.example GET 200\nread"},
		{"removed and set in one answer", "grant " + own + "\nget " + url + " 200 sid=;_Path=/;_Max-Age=0 " + next + ";_Path=/;_HttpOnly\nend " + after, "replaced site shop.example GET 200\nread"},
		{"the answer is reported first", "grant " + own + "\nearly " + url + " 302 sid=;_Path=/;_Max-Age=0\nend", "dropped site shop.example GET 302\nread"},
		{"after something was typed", "grant " + own + "\ntyped\npost " + url + " 302 " + next + ";_Path=/;_HttpOnly\nend " + after, "replaced site shop.example POST 302 typed\nread"},
		{"reading after something was typed", "grant " + own + "\ntyped\nfetch " + url + " 200 " + next + ";_Path=/;_HttpOnly\nend " + after, "replaced site shop.example GET 200\nread"},
		{"out and in", "grant " + own + "\nget " + url + "out 302 sid=;_Path=/;_Max-Age=0\npost " + url + " 200 " + next + ";_Path=/;_HttpOnly\nend " + after,
			"dropped site shop.example GET 302\nset_again site shop.example POST 200\nread"},
		{"out and in as it was", "grant " + own + "\nget " + url + "out 302 sid=;_Path=/;_Max-Age=0\nget " + url + " 200 " + sid + ";_Path=/;_HttpOnly\nend " + own,
			"dropped site shop.example GET 302\nset_again site shop.example GET 200 same\nread"},
		{"a token of another account", "grant t=" + claims("ann") + "@shop.example\nget " + url + " 200 t=" + claims("bob") + ";_Path=/\nend t=" + claims("bob") + "@shop.example",
			"replaced site shop.example GET other 200\nread"},
		{"a later token of the account, by script", "grant t=" + claims("ann") + "@shop.example\nend t=" + claims("ann") + "z@shop.example", "replaced script shop.example same\nread"},
		{"gone by a command", "grant " + own + "\ncommand Network.deleteCookies writes\nend", "written worker Network.deleteCookies\ndropped worker shop.example\nread"},
		{"exchanged by a command", "grant " + own + "\ncommand Storage.setCookies writes\nend " + after, "written worker Storage.setCookies\nreplaced worker shop.example\nread"},
		{"gone by nobody knows whom", "grant " + own + "\nend", "dropped unknown shop.example\nread"},
		{"a script's to remove", "grant t=" + claims("ann") + "@shop.example\nend", "dropped script shop.example\nread"},
		{"run out", "grant " + own + "+expired\nend", "dropped expiry shop.example\nread"},
		{"one of two run out", "grant " + own + "+expired r=secret-0123456789abcdef@.shop.example+httponly\nend r=secret-0123456789abcdef@.shop.example+httponly",
			"dropped expiry shop.example kept\nread"},
		{"a word that no script reads, the only one", "grant w=secret@shop.example+httponly\nget " + url + " 200 w=;_Path=/;_Max-Age=0\nend", "dropped site shop.example GET 200\nread"},
		{"a word beside the session", "grant w=secret@shop.example+httponly " + own + "\nget " + url + " 200 w=;_Path=/;_Max-Age=0\nend " + own, "read"},
		{"asked for", "command Storage.getCookies\nend", "given worker Storage.getCookies\nread"},
		{"they cannot be read", "grant " + own + "\nfails", "unread"},
		{"they are read later", "grant " + own + "\nfails\nend", "unread\ndropped unknown shop.example\nread"},
	} {
		if got := cookieScript(t, tt.script); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

// TestCookiesAsChromeTakesThem: more names and values than Go's parser does, and quotes are part of a value.
func TestCookiesAsChromeTakesThem(t *testing.T) {
	const url, lines = "https://shop.example/", ";_Path=/;_HttpOnly"
	for name, tt := range map[string]struct{ cookie, next string }{
		"quotes in the value":     {`sid=secret5f"2b8c1e9d3a4f60`, `sid=secret77"aa01c2b3d4e5f6`},
		"quotes around the value": {`sid="secret5f2b8c1e9d3a4f60"`, `sid="secret77aa01c2b3d4e5f6"`},
		"JSON":                    {`sid={"k":"secret5f2b8c1e9d3a4f60"}`, `sid={"k":"secret77aa01c2b3d4e5f6"}`},
		"a backslash":             {`sid=secret5f\2b8c1e9d3a4f60`, `sid=secret77\aa01c2b3d4e5f6`},
		"letters beyond ASCII":    {`sid=secretë5f2b8c1e9d3a4f60`, `sid=secretë77aa01c2b3d4e5f6`},
		"a name that is no token": {`s[id]=secret5f2b8c1e9d3a4f60`, `s[id]=secret77aa01c2b3d4e5f6`},
		"no name":                 {`=secret5f2b8c1e9d3a4f60`, `secret77aa01c2b3d4e5f6`},
	} {
		t.Run(name, func(t *testing.T) {
			key, _, _ := strings.Cut(tt.cookie, "=")
			in := func(cookie string) string {
				return key + "=" + strings.TrimPrefix(cookie, key+"=") + "@shop.example+httponly"
			}
			script := "grant " + in(tt.cookie) + "\nget " + url + " 200 " + tt.next + lines + "\nend " + in(tt.next)
			if got, want := cookieScript(t, script), "replaced site shop.example GET 200\nread"; got != want {
				t.Errorf("it rotates:\n%s\nwant\n%s", got, want)
			}
			script = "grant " + in(tt.cookie) + "\nget " + url + " 302 " + key + "=\"\"" + lines + ";_Max-Age=0\nend"
			if got, want := cookieScript(t, script), "dropped site shop.example GET 302\nread"; got != want {
				t.Errorf("the site signs out:\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestCookiesOfARealBrowser: what an answer sets is what the browser then has, whatever is in it. So nothing
// but the site counts as who set it.
func TestCookiesOfARealBrowser(t *testing.T) {
	t.Parallel()
	pairs := []string{`a="secret%s2b8c1e9d3a4f60"`, `b=sec"ret%s2b8c1e9d3a4f60`, `c={"k":"s%s2b8c1e9d3a4f60"}`, `d=secretë%s2b8c1e9d3a4f60`, `e[0]=secret%s2b8c1e9d3a4f60`, `secret%s2b8c1e9d3a4f60`, `f=secret\%s2b8c1e9d3a4f60`}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, pair := range pairs {
			w.Header()["Set-Cookie"] = append(w.Header()["Set-Cookie"], fmt.Sprintf(pair, strings.TrimPrefix(r.URL.Path, "/"))+"; Path=/; HttpOnly")
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!doctype html><link rel=icon href=data:,>text")
	}))
	t.Cleanup(site.Close)
	w := watch(t)
	page := w.open(site.URL + "/1")
	jar := func() (r json.RawMessage) {
		w.call("", "Storage.getCookies", nil, &r)
		return r
	}
	w.monitor.Cookies().Learn(jar(), nil)()
	w.visit(page, site.URL+"/2")
	bySite := map[string]bool{}
	w.until(func(e checkpoint.Entry) bool {
		if e.Cookie != nil && e.Cookie.What == checkpoint.CookieReplaced {
			bySite[e.Cookie.Cookie] = true
		}
		return len(bySite) == len(pairs)
	})
	w.monitor.Cookies().Compare(jar(), nil)
	for _, e := range w.until(func(e checkpoint.Entry) bool { return e.Cookie != nil && e.Cookie.What == checkpoint.CookiesRead }) {
		if e.Cookie != nil && e.Cookie.What == checkpoint.CookieReplaced && e.Cookie.By != checkpoint.BySite {
			t.Errorf("%+v", *e.Cookie)
		}
	}
}

// TestRotatingCookiesAreReportedWithinBounds: a site that renews its session with every
// answer fills no journal; an exchange, and its end, are reported all the same.
func TestRotatingCookiesAreReportedWithinBounds(t *testing.T) {
	script := "grant sid=secret-0@shop.example+httponly"
	for i := range 500 {
		script += fmt.Sprintf("\nget https://shop.example/ 200 sid=secret-%d;_Path=/;_HttpOnly", i+1)
	}
	script += "\nget https://shop.example/link?to=another 302 sid=of-another;_Path=/;_HttpOnly"
	got := strings.Split(cookieScript(t, script+"\nget https://shop.example/out 302 sid=;_Path=/;_Max-Age=0\nend"), "\n")
	if n := len(got); n > maxCookieReports+3 || !slices.Equal(got[n-3:n-1], []string{"replaced site shop.example GET 302", "dropped site shop.example GET 302"}) {
		t.Errorf("%d entries, the last %q", len(got), got[len(got)-2:])
	}
}

func TestParseAnswer(t *testing.T) {
	for _, tt := range []struct {
		params string
		want   string
	}{
		{`{"requestId":"1","headers":{"content-type":"x"},"statusCode":200}`, "0 [] false"},
		{`{"requestId":"1","headers":{"Set-Cookie":"a=1\nb=2; Path=/"},"statusCode":200}`, "200 [a=1 b=2; Path=/] false"},
		{`{"requestId":"1","blockedCookies":[{"cookieLine":"b=2"}],"headers":{"SET-COOKIE":"a=1\nb=2"},"statusCode":404}`, "404 [a=1] false"},
		{`{"requestId":"1","headers":{"Clear-Site-Data":"\"cache\", \"cookies\""},"statusCode":200}`, "200 [] true"},
		{`{"requestId":"1","headers":{"clear-site-data":"\"cache\""},"statusCode":200}`, "200 [] false"},
	} {
		a := parseCookieAnswer([]byte(tt.params))
		if got := fmt.Sprint(a.status, " ", a.lines, " ", a.cleared); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.params, got, tt.want)
		}
	}
}

func FuzzCookieAnswers(f *testing.F) {
	f.Add(`{"requestId":"1","headers":{"Set-Cookie":"a=1; Domain=.shop.example; Expires=x"},"statusCode":200}`)
	f.Add(`{"requestId":"1","headers":{"set-cookie":"=;;\n\"","clear-site-data":"*"}}`)
	f.Fuzz(func(t *testing.T, params string) {
		w := newCookieWatch()
		no, now := func() bool { return false }, time.Now()
		r := &ledger.Request{Hops: []ledger.Hop{{Sent: []byte(`{"requestId":"1","request":{"url":"https://shop.example/a","method":"GET"},"type":"Document"}`)}}}
		w.observe(ledger.Fact{Event: ledger.Event{Method: ledger.Headers, Params: []byte(params)}, Request: r}, no, no, now)
		for _, c := range w.known {
			if c.domain != "shop.example" && !strings.HasSuffix(".shop.example", c.domain) {
				t.Errorf("shop.example set a cookie of %q", c.domain)
			}
		}
	})
}
