package snapshots_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold/internal/test/objectstest"
	"leasehold/internal/test/testchrome"
	"leasehold/launcher/chrome"
	"leasehold/launcher/snapshots"
)

// marker is in everything that the site stores of the account.
const marker = "account-marker-7c1d"

// site is a site that stores something of the account wherever a page can.
func site(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/in" {
			http.SetCookie(w, &http.Cookie{Name: "account", Value: marker, MaxAge: 1e6, HttpOnly: true})
			w.Header().Set("Cache-Control", "max-age=100000")
		}
		cookie, _ := r.Cookie("account")
		value := "none"
		if cookie != nil {
			value = cookie.Value
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<title>site</title><body data-cookie=%q></body>", value)
	})
	mux.HandleFunc("/worker.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		fmt.Fprintf(w, `self.addEventListener("fetch", e => { if (e.request.url.endsWith("/offline")) e.respondWith(caches.open("kept").then(c => c.match("/offline"))) }) // %s`, marker)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
}

const storeAll = `(async () => {
	localStorage.setItem("account", %[1]q)
	const db = await new Promise((ok, no) => { const r = indexedDB.open("db"); r.onupgradeneeded = () => r.result.createObjectStore("s"); r.onsuccess = () => ok(r.result); r.onerror = no })
	await new Promise((ok, no) => { const t = db.transaction("s", "readwrite", {durability: "strict"}); t.objectStore("s").put(%[1]q, "account"); t.oncomplete = ok; t.onerror = no })
	await (await caches.open("kept")).put("/offline", new Response(%[1]q))
	await navigator.serviceWorker.register("/worker.js")
	await navigator.serviceWorker.ready
	const dir = await navigator.storage.getDirectory()
	const file = await (await dir.getFileHandle("account", {create: true})).createWritable()
	await file.write(%[1]q)
	await file.close()
	return "stored"
})()`

const readAll = `(async () => {
	const db = await new Promise((ok, no) => { const r = indexedDB.open("db"); r.onsuccess = () => ok(r.result); r.onerror = no })
	const kept = await new Promise((ok, no) => { const r = db.transaction("s").objectStore("s").get("account"); r.onsuccess = () => ok(r.result); r.onerror = no })
	const registration = await navigator.serviceWorker.ready
	const file = await (await (await navigator.storage.getDirectory()).getFileHandle("account")).getFile()
	return JSON.stringify({
		cookie: document.body.dataset.cookie, localStorage: localStorage.getItem("account"), indexedDB: kept,
		cacheStorage: await (await caches.match("/offline")).text(), worker: registration.active.scriptURL.split("/").pop(), files: await file.text(),
		permission: (await navigator.permissions.query({name: "geolocation"})).state,
	})
})()`

// keptByName are files of an account in which no page can leave a marker.
var keptByName = []string{
	"Local State", "Default/Preferences", "Default/Secure Preferences", "Default/Cookies", "Default/Login Data", "Default/Login Data For Account",
	"Default/Web Data", "Default/Account Web Data", "Default/History", "Default/Favicons", "Default/Top Sites", "Default/Network Persistent State",
	"Default/Trust Tokens", "Default/Affiliation Database",
}

// What the account has survives a seal and a fetch into another directory: byte by byte in
// the files, and value by value in a browser that is started there. What is left out has
// nothing of the account in it but what the network would bring again.
func TestWhatTheAccountHasSurvives(t *testing.T) {
	url := site(t)
	o := testchrome.Options(t)
	dir := o.ProfileDir
	// A permission and an extension's files as a person's browser has them.
	allowed, err := json.Marshal(map[string]any{"profile": map[string]any{"content_settings": map[string]any{"exceptions": map[string]any{
		"geolocation": map[string]any{url + "," + url: map[string]any{"setting": 1}},
	}}}})
	must(t, err)
	objectstest.Tree{
		"Default/Preferences": string(allowed), "Default/Extensions/abcdefghijklmnopabcdefghijklmnop/1.0_0/manifest.json": `{"name":"` + marker + `"}`,
		"Default/Local Extension Settings/abcdefghijklmnopabcdefghijklmnop/000003.log": marker,
	}.WriteTo(t, dir)
	run := func(o chrome.Options, path, script string) string {
		t.Helper()
		d := testchrome.Drive(t, o)
		_, session := d.Open(url + path)
		said := d.Eval(session, script)
		if how, err := d.Browser().Close(t.Context(), d.Ask, chrome.CloseTimeouts{}); err != nil {
			t.Fatalf("%s, %v", how, err)
		}
		return said
	}
	if said := run(o, "/in", fmt.Sprintf(storeAll, marker)); said != "stored" {
		t.Fatalf("the page answered %v, want %s", said, "stored")
	}
	// Chromium makes some of its files a while after its start: a browser that was closed before
	// that is opened again.
	for late := time.Now().Add(testchrome.Patience); ; run(o, "/in", `"again"`) {
		missing := slices.DeleteFunc(slices.Clone(keptByName), func(name string) bool {
			_, err := os.Stat(filepath.Join(dir, name))
			return err == nil
		})
		if len(missing) == 0 {
			break
		}
		if time.Now().After(late) {
			t.Fatalf("this Chromium has no %q: the list of what has to be kept does not fit it", missing)
		}
	}
	s := snapshots.New(openDir(t), snapshots.NewKey())
	made, err := objectstest.Seal(t, s, "p", dir, 1)
	must(t, err)
	to := filepath.Join(t.TempDir(), "elsewhere")
	if _, err := s.Fetch(t.Context(), "p", made.ID, to, snapshots.FetchOptions{}); err != nil {
		t.Fatal(err)
	}

	before, after := readFiles(t, dir), objectstest.ReadTree(t, to)
	var left, kept uint64
	for path, content := range before {
		fetched, there := after[path]
		switch {
		case there && fetched != content:
			t.Errorf("%s has other bytes", path)
		case there:
			kept += uint64(len(content))
		default:
			left += uint64(len(content))
			if strings.Contains(content, marker) && !strings.HasPrefix(path, "Default/Cache/") && !strings.HasPrefix(path, "Default/Code Cache/") {
				t.Errorf("%s is left out and has something of the account", path)
			}
		}
	}
	t.Logf("%d bytes are kept and %d left out", kept, left)
	if history := after["Default/History"]; !strings.Contains(history, url+"/in") {
		t.Error("the history does not know the page")
	}
	if after["Default/Extensions/abcdefghijklmnopabcdefghijklmnop/1.0_0/manifest.json"] == "" {
		t.Error("the extension's files are gone")
	}
	if left == 0 {
		t.Error("nothing was left out: the lists do not fit this Chromium")
	}

	// What pages cannot write a marker into: what a person saved, and what sites are known by.
	for _, path := range keptByName {
		if content, there := after[path]; !there || content != before[path] {
			t.Errorf("%s is not kept", path)
		}
	}

	o.ProfileDir = to
	said := run(o, "/out", readAll)
	var got map[string]string
	if err := json.Unmarshal([]byte(said), &got); err != nil {
		t.Fatalf("%s: %v", said, err)
	}
	for what, want := range map[string]string{
		"cookie": marker, "localStorage": marker, "indexedDB": marker, "cacheStorage": marker, "worker": "worker.js", "files": marker, "permission": "granted",
	} {
		if got[what] != want {
			t.Errorf("%s is %q in the other directory, want %q", what, got[what], want)
		}
	}
}

// readFiles reads the regular files of a directory.
func readFiles(t *testing.T, dir string) objectstest.Tree {
	t.Helper()
	tree := objectstest.Tree{}
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		content, readErr := os.ReadFile(path)
		tree[rel] = string(content)
		return errors.Join(err, readErr)
	}))
	return tree
}
