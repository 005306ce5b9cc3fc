package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold/evidence"
	"leasehold/internal/test/clients"
	"leasehold/lease"
)

// plantedSecrets are the secrets, a different one for each place, so that a leak shows
// where it came from.
var plantedSecrets = map[string]string{
	"typed password":        "pl4ntedPassw0rd",
	"typed text":            "pl4ntedTyp3dText",
	"typed area":            "pl4ntedAr3a",
	"edited text":           "pl4ntedEd1table",
	"hidden field":          "pl4ntedH1ddenField",
	"cookie value":          "pl4ntedC00kie",
	"HTTP-only cookie":      "pl4ntedHttp0nly",
	"session cookie":        "pl4ntedSessi0n",
	"Authorization header":  "pl4ntedAuth0rization",
	"worker's extra header": "pl4ntedExtraH3ader",
	"URL token":             "pl4ntedUrlT0ken",
	"URL user":              "pl4ntedUs3rinfo",
	"URL fragment":          "pl4ntedFragm3nt",
	"URL path token":        "pl4ntedPathT0ken7f3a",
	"URL unnamed token":     "pl4ntedUnnam3dT0ken",
	"text in a GET form":    "pl4ntedsearch",
	"text in a route":       "pl4ntedroute",
	"local storage":         "pl4ntedL0calStorage",
	"session storage":       "pl4ntedSess10nStorage",
	"POST body":             "pl4ntedP0stBody",
	"console message":       "pl4ntedC0nsole",
	"exception":             "pl4ntedExc3ption",
	"response body":         "pl4ntedR3sponse",
	"script source":         "pl4ntedScr1pt",
	"evaluated expression":  "pl4ntedExpr3ssion",
}

func plant(name string) string {
	s, ok := plantedSecrets[name]
	if !ok {
		panic("no secret " + name)
	}
	return s
}

// plantedSite serves a page that contains those secrets that a site can have.
func plantedSite(t *testing.T) *httptest.Server {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "sid", Value: plant("HTTP-only cookie"), HttpOnly: true, MaxAge: 3600})
		http.SetCookie(w, &http.Cookie{Name: "tmp", Value: plant("session cookie")})
		if strings.HasPrefix(r.URL.Path, "/api") {
			fmt.Fprint(w, plant("response body"))
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, `<!DOCTYPE html><title>Account</title><h1>Kept heading</h1><form id=find action=/find><input name=q></form><iframe id=out name=out></iframe>
			<script>var s = %q</script>
			<form id=f method=post action="/api/login?token=%s" onsubmit="event.preventDefault()">
			<input id=user><input id=pass type=password><input type=hidden name=csrf value=%s><textarea id=area></textarea></form>
			<div id=edit contenteditable>x</div><a href="/next?session=%s#access_token=%s">next</a>`,
			plant("script source"), plant("URL token"), plant("hidden field"), plant("URL token"), plant("URL fragment"))
	}))
	t.Cleanup(web.Close)
	return web
}

// plantAll makes a worker put every secret into its place.
func plantAll(t *testing.T, c *clients.Client, web string) {
	t.Helper()
	do := func(name string, pairs ...any) {
		t.Helper()
		a := clients.Action{"action": name}
		for i := 0; i < len(pairs); i += 2 {
			a[pairs[i].(string)] = pairs[i+1]
		}
		c.Do(t, a)
	}
	host := strings.TrimPrefix(web, "http://")
	do("cdp", "method", "Network.setExtraHTTPHeaders", "params", map[string]any{"headers": map[string]any{"Authorization": "Bearer " + plant("worker's extra header")}})
	do("goto", "url", web+"/")
	do("fill", "selector", "#find input", "text", plant("text in a GET form"))
	do("evaluate", "expression", `(async () => {
		const form = document.getElementById("find"), out = document.getElementById("out")
		form.target = "out"
		await new Promise(done => { out.onload = done; form.submit() })
		history.pushState({}, "", "/find?q=`+plant("text in a GET form")+`&`+plant("text in a GET form")+`")
		location.hash = "/find?q=`+plant("text in a route")+`"
		navigator.sendBeacon("/api?q=`+plant("text in a GET form")+`")
	})()`)
	do("goto", "url", "http://u:"+plant("URL user")+"@"+host+"/reset/"+plant("URL path token")+"?token="+plant("URL token")+"&ref="+plant("URL unnamed token")+"#access_token="+plant("URL fragment"))
	do("setCookie", "cookie", map[string]any{"name": "mine", "value": plant("cookie value"), "url": web})
	do("fill", "selector", "#user", "text", plant("typed text"))
	do("fill", "selector", "#pass", "text", plant("typed password"))
	do("fill", "selector", "#area", "text", plant("typed area")+"\nsecond line")
	do("fill", "selector", "#edit", "text", plant("edited text"))
	do("evaluate", "expression", fmt.Sprintf(`(async () => {
		const unused = %q
		localStorage.setItem("auth", %q)
		sessionStorage.setItem("auth", %q)
		console.log("password", %q)
		setTimeout(() => { throw new Error(%q) })
		const r = await fetch(location.origin + "/api/login?token=" + %q + "#x", {method: "POST", body: "password=" + %q, headers: {Authorization: "Bearer " + %q}})
		await r.text()
		document.title = "Hello " + document.getElementById("user").value
		const mirror = document.createElement("p")
		mirror.textContent = "signed in as " + document.getElementById("user").value
		document.body.append(mirror)
	})()`, plant("evaluated expression"), plant("local storage"), plant("session storage"), plant("console message"), plant("exception"),
		plant("URL token"), plant("POST body"), plant("Authorization header")))
	do("cdp", "method", "Lease.step", "params", map[string]any{"name": "fill_form"})
}

// checkForSecrets looks for the secrets in what was written about the session.
func checkForSecrets(t *testing.T, where string, content []byte) {
	t.Helper()
	small := bytes.ToLower(content) // once: the files are large
	for name, secret := range plantedSecrets {
		if at := bytes.Index(small, bytes.ToLower([]byte(secret))); at >= 0 {
			t.Errorf("%s has the secret of the %s: ...%q...", where, name, content[max(0, at-80):min(len(content), at+len(secret)+40)])
		}
	}
}

// TestNothingSecretIsWritten runs the real sidecar, Chromium and Playwright. One session is
// lost, and one is released in order. Then everything that was written outside of the
// profile itself is searched for the secrets.
func TestNothingSecretIsWritten(t *testing.T) {
	web := plantedSite(t)
	dir, store := t.TempDir(), t.TempDir()
	url, _ := startSidecarProcess(t, dir, "--evidence-store", "file://"+store)
	defer http.DefaultClient.CloseIdleConnections()

	for _, end := range []string{"lost", "released"} {
		c := clients.Start(t, clients.Playwright, url+"/profiles/"+end+"?worker=w&task=t&create=true", clients.Interactive)
		c.Expect(t, "connect")
		plantAll(t, c, web.URL)
		if end == "lost" {
			c.Kill()
		} else {
			c.Do(t, clients.Action{"action": "disconnect"})
		}
		want := map[string]lease.State{"lost": lease.ManualReview, "released": lease.Available}[end]
		var record lease.Record
		for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
			raw := get(t, url+"/v1/profiles/"+end, &record)
			checkForSecrets(t, "the record of "+end, raw)
			if record.State == want && record.EvidenceID != "" {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s is %s", end, record.State)
			}
		}
		if !strings.HasPrefix(record.LastKnownURL, web.URL+"/reset/") {
			t.Errorf("the record of %s lacks its URL: %s", end, record.LastKnownURL)
		}
		checkForSecrets(t, "the history of "+end, get(t, url+"/v1/profiles/"+end+"/history", nil))
		checkForSecrets(t, "the inspection of "+end, get(t, url+"/v1/profiles/"+end+"/inspection", nil))
		var m evidence.Manifest
		checkForSecrets(t, "the manifest of "+end, get(t, url+"/v1/evidence/"+record.EvidenceID, &m))
		kinds := map[string]int{}
		for _, p := range m.Parts {
			if p.Missing != "" {
				t.Errorf("%s: part %s is missing: %s", end, p.Name, p.Missing)
				continue
			}
			kinds[p.Kind]++
			content := get(t, url+"/v1/evidence/"+record.EvidenceID+"/"+p.Name, nil)
			checkForSecrets(t, end+" "+p.Name, content)
			if p.Kind == evidence.KindJournal {
				for _, want := range []string{`"kind":"form","url":"` + web.URL + `/find?q=REDACTED"`, web.URL + "/find?q=REDACTED\\u0026REDACTED#/find?q=REDACTED"} {
					if !bytes.Contains(content, []byte(want)) {
						t.Errorf("%s: the journal lacks %s:\n%s", end, want, content)
					}
				}
			}
			if p.Kind == evidence.KindDOM && !bytes.Contains(content, []byte("Kept heading")) {
				t.Errorf("%s: the DOM part lacks the page: %s", end, content)
			}
		}
		for _, kind := range []string{
			evidence.KindScreenshot, evidence.KindDOM, evidence.KindJournal, evidence.KindCommands, evidence.KindNetwork, evidence.KindConsole,
			evidence.KindDigests, evidence.KindCookiesDigest, evidence.KindProcesses, evidence.KindLock, evidence.KindOutput,
		} {
			if kinds[kind] == 0 {
				t.Errorf("%s: no part of kind %s", end, kind)
			}
		}
	}

	// Read through REST, all evidence is as it was sealed.
	if out, err := exec.Command("leasehold", "evidence", "verify", "--url", url).CombinedOutput(); err != nil || !bytes.Contains(out, []byte("ok")) {
		t.Errorf("verify: %v\n%s", err, out)
	}

	// The files are the spool, the store, the session files and journals, those of NATS
	// with the records and events, and the log. The profiles themselves contain secrets,
	// and so do the session cookies that are carried over to the next session: those two
	// are left out.
	files := 0
	for _, root := range []string{dir, store} {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil // a temporary file
			case err != nil:
				return err
			case e.IsDir() && (path == filepath.Join(dir, "profiles") || path == filepath.Join(dir, "session-cookies")):
				return filepath.SkipDir
			case !e.Type().IsRegular():
				return nil
			}
			content, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			files++
			checkForSecrets(t, path, content)
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if files < 20 {
		t.Errorf("only %d files were searched", files)
	}
}
