package methods_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"leasehold/cdpproxy/methods"
	"leasehold/internal/test/testchrome"
	"leasehold/launcher/chrome"
)

var update = flag.Bool("update", false, "write docs/cdp-methods.md")

const document = "../../docs/cdp-methods.md"

// page is docs/cdp-methods.md.
func page() string {
	all := methods.All()
	slices.Sort(all)
	var b strings.Builder
	passes := map[string][]string{}
	var rows []*methods.Method
	for _, name := range all {
		if m := methods.Find([]byte(name)); m.Class == methods.Passes {
			domain, short, _ := strings.Cut(name, ".")
			passes[domain] = append(passes[domain], short)
		} else {
			rows = append(rows, m)
		}
	}
	fmt.Fprintf(&b, `# What a worker may do over CDP

The sidecar has a class for each of Chrome's %d methods. It refuses a method that is in no class with the error
with which Chrome answers a method that does not exist. What is refused is answered with a CDP error that says
what was refused, why, and what is allowed; it is in the session's journal, once per method and reason, with how
often it happened. `+"`Lease.*`"+` is the sidecar's own domain.

This page is made of the table in `+"`cdpproxy/methods`"+`. After a change there, write it anew:
`+"`go test ./cdpproxy/methods -run TestThePageShowsTheTable -update`"+`. What limits files and downloads:
[restrictions](restrictions.md).

## Methods that do not pass as they are

| method | class | why |
| --- | --- | --- |
`, len(all))
	for _, m := range rows {
		class := m.Class.String()
		switch {
		case len(m.Without) > 0 && m.Class == methods.Web:
			class += " and without `" + strings.Join(m.Without, "`, `") + "`"
		case len(m.Without) > 0:
			class += ": `" + strings.Join(m.Without, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.Name, class, m.Why)
	}
	b.WriteString(`
## Methods that are refused while a person has the session

A person who takes a session over acts on its pages alone until it is handed back ([person](person.md)). These are
refused meanwhile, also where they pass otherwise; all others stay as they are. ` + "`Runtime.evaluate`, `Runtime.callFunctionOn`" + `
and their like pass, since nobody can tell a script that reads from one that acts: a worker that waits for a person
reads only. What clients send to each new tab passes, too, where it changes at most the looks of the page.

Of the methods in the table, these commands pass all the same: ` + "`Fetch.continueRequest`, `Fetch.continueResponse`" + `
and ` + "`Fetch.continueWithAuth`" + ` where they let a paused request go as it is (without parameters that change it, and with
the response ` + "`Default`" + `), and ` + "`Page.addScriptToEvaluateOnNewDocument`" + ` where the script is empty or one comment.

| methods | why |
| --- | --- |
`)
	for _, effect := range []methods.Effect{methods.Acts, methods.Sets, methods.Stays} {
		for _, domain := range domainsOf(effect) {
			fmt.Fprintf(&b, "| `%s` | %s |\n", strings.Join(domain, "`, `"), effect.Why())
		}
	}
	b.WriteString("\n## Methods that pass as they are\n\n| domain | methods |\n| --- | --- |\n")
	domains := make([]string, 0, len(passes))
	for d := range passes {
		domains = append(domains, d)
	}
	slices.Sort(domains)
	for _, d := range domains {
		fmt.Fprintf(&b, "| `%s` | %s |\n", d, strings.Join(passes[d], ", "))
	}
	return b.String()
}

// domainsOf returns the methods with an effect, by domain and sorted.
func domainsOf(effect methods.Effect) [][]string {
	all := methods.All()
	slices.Sort(all)
	var lists [][]string
	last := ""
	for _, name := range all {
		if methods.Find([]byte(name)).Effect != effect {
			continue
		}
		domain, _, _ := strings.Cut(name, ".")
		if domain != last {
			lists = append(lists, nil)
		}
		last = domain
		lists[len(lists)-1] = append(lists[len(lists)-1], name)
	}
	return lists
}

func TestThePageShowsTheTable(t *testing.T) {
	want := page()
	if *update {
		if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(document)
	if err != nil || string(got) != want {
		t.Errorf("docs/cdp-methods.md is not what the table says (%v): run this test with -update", err)
	}
}

// TestWhoSendsARefusedMethodIsSaid: docs/clients.md has each of them, or its domain if all of that is
// refused, and none that passes.
func TestWhoSendsARefusedMethodIsSaid(t *testing.T) {
	page, err := os.ReadFile("../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "<!-- refused methods -->")
	list, _, _ := strings.Cut(rest, "<!-- end of refused methods -->")
	said := map[string]bool{}
	for row := range strings.Lines(list) {
		if cells := strings.Split(row, "|"); len(cells) > 2 {
			for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
				said[name[1]] = true
			}
		}
	}
	passes := map[string]bool{} // domains with a method that passes
	for _, name := range methods.All() {
		if domain, _, _ := strings.Cut(name, "."); methods.Find([]byte(name)).Class != methods.Refused {
			passes[domain+".*"] = true
		}
	}
	found := map[string]bool{}
	for _, name := range methods.All() {
		domain, _, _ := strings.Cut(name, ".")
		if methods.Find([]byte(name)).Class != methods.Refused {
			continue
		}
		if !said[name] && !said[domain+".*"] {
			t.Errorf("docs/clients.md does not say which client sends %s", name)
		}
		found[name], found[domain+".*"] = true, true
	}
	for name := range said {
		if !found[name] || passes[name] {
			t.Errorf("docs/clients.md has %s among the refused methods", name)
		}
	}
}

func TestWhatDoesNotPassSaysWhy(t *testing.T) {
	for _, name := range methods.All() {
		m := methods.Find([]byte(name))
		if m.Name != name || m.Class == methods.Unknown {
			t.Errorf("%s: %+v", name, m)
		}
		if (m.Why == "") != (m.Class == methods.Passes) || m.Class == methods.Limited && len(m.Without) == 0 || len(m.Without) > 0 && m.Class != methods.Limited && m.Class != methods.Web {
			t.Errorf("%s: class %v, why %q, without %v", name, m.Class, m.Why, m.Without)
		}
		if (m.Effect == methods.Undecided) != (m.Class == methods.Refused) {
			t.Errorf("%s: class %v, effect %v: decide what it changes", name, m.Class, m.Effect)
		}
	}
}

// protocol is what the installed Chromium says of itself. It does so on a port only, so
// it is started on an empty profile of its own.
func protocol(t *testing.T) []string {
	t.Helper()
	binary, err := chrome.Find("")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	args := []string{"--headless", "--remote-debugging-port=0", "--user-data-dir=" + dir, "--no-first-run", "--disable-gpu", "--disable-background-networking"}
	if os.Geteuid() == 0 {
		args = append(args, "--no-sandbox")
	}
	cmd := exec.Command(binary, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		for range 100 { // its children may still write for a moment
			if os.RemoveAll(dir) == nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), testchrome.Patience)
	defer cancel()
	port := ""
	for port == "" && ctx.Err() == nil {
		b, _ := os.ReadFile(filepath.Join(dir, "DevToolsActivePort"))
		if first, _, whole := strings.Cut(string(b), "\n"); whole {
			port = first
		}
		time.Sleep(20 * time.Millisecond)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+port+"/json/protocol", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var described struct {
		Domains []struct {
			Domain   string
			Commands []struct{ Name string }
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&described); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range described.Domains {
		for _, c := range d.Commands {
			names = append(names, d.Domain+"."+c.Name)
		}
	}
	return names
}

func TestEveryMethodOfChromeHasAClass(t *testing.T) {
	names := protocol(t)
	if len(names) < 500 {
		t.Fatalf("Chrome names %d methods", len(names))
	}
	for _, name := range names {
		if methods.Find([]byte(name)) == nil {
			t.Errorf("%s is in no class: put it into passing.go or methods.go, after the questions that stand there", name)
		}
	}
}

func TestFindAllocatesNothing(t *testing.T) {
	known, unknown := []byte("Runtime.evaluate"), []byte("Runtime.evaluatf")
	if n := testing.AllocsPerRun(100, func() {
		if methods.Find(known) == nil || methods.Find(unknown) != nil {
			t.Fail()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
