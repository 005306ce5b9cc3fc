package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

func grammar(t testing.TB) *kong.Node {
	t.Helper()
	a := &app{stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}}
	if err := a.run([]string{"version"}); err != nil {
		t.Fatal(err)
	}
	return a.model
}

func twoProfiles() []string { return []string{"shop_1", "shop_2"} }

func TestCommandLinesAreCompleted(t *testing.T) {
	model := grammar(t)
	for line, want := range map[string]string{
		"ev":                                 "evidence",
		"evidence e":                         "export",
		"evidence k":                         "keygen",
		"evidence sh":                        "shop_1 shop_2", // the default command lists a profile's
		"evidence export ev_1 --format ":     "har html zip",
		"evidence export ev_1 --format=h":    "--format=har --format=html",
		"evidence export ev_1 --format = h":  "har html",
		"evidence export ev_1 --format = ":   "har html zip",
		"evidence export ev_1 --unv":         "--unverified",
		"evidence export --unverified ":      "", // an evidence id
		"show ":                              "shop_1 shop_2",
		"show --facts shop_2":                "shop_2",
		"show shop_1 ":                       "",
		"show --url http://h:1 shop_":        "shop_1 shop_2",
		"completion f":                       "fish",
		"exec --profile ":                    "shop_1 shop_2",
		"exec --profile shop_1 -- node run.": "", // a file
		"review shop_1 --decision a":         "approve",
		"run --on-exit ":                     "close leave",
		"nosuch ":                            "",
		"guar":                               "", // hidden
	} {
		var got []string
		for _, c := range complete(model, strings.Split(line, " "), twoProfiles) {
			got = append(got, c.text)
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func FuzzComplete(f *testing.F) {
	for _, line := range []string{"", "run --", "evidence export = = --format", "-- x", "show\x00--url=", "exec -- --profile"} {
		f.Add(line)
	}
	model := grammar(f)
	f.Fuzz(func(t *testing.T, line string) {
		words := strings.Split(line, " ")
		typed := strings.TrimPrefix(words[len(words)-1], "=")
		for _, c := range complete(model, words, twoProfiles) {
			if !strings.HasPrefix(c.text, typed) {
				t.Errorf("%q is completed to %q", line, c.text)
			}
		}
	})
}

// bash itself runs the script, with the words as it splits them.
func TestBashCompletes(t *testing.T) {
	var script, stderr bytes.Buffer
	if code := cli([]string{"completion", "bash"}, strings.NewReader(""), &script, &stderr); code != 0 {
		t.Fatalf("exit status %d, want 0: %s", code, stderr.String())
	}
	program := script.String() + `
leasehold() { local IFS=,; echo "$*"; printf 'har\thelp: of it\nhtml\t\n'; }
COMP_WORDS=(leasehold evidence export x --format ""); COMP_CWORD=5
_leasehold; echo "${COMPREPLY[*]}"; complete -p leasehold`
	out, err := exec.Command("bash", "-c", program).CombinedOutput()
	if want := "complete,--,evidence,export,x,--format, har html\ncomplete -o default -F _leasehold leasehold\n"; err != nil || string(out) != want {
		t.Errorf("%q, %v, want %q", out, err, want)
	}
}

// zsh and fish run their scripts, too: with a program that prints two candidates and what it was
// asked, and with one that knows nothing, so that files are offered.
func TestZshAndFishComplete(t *testing.T) {
	const zsh = `compdef() { print -- "compdef $*"; }; _describe() { print -l -- "${(@P)2}"; }; _files() { print files; }
source ./script; words=(leasehold evidence export x --format ""); CURRENT=6; _leasehold`
	const fish = `source ./script; complete -C "leasehold evidence export x --format "`
	for _, tt := range []struct{ shell, option, program, want, files string }{
		{"zsh", "-f", zsh, "compdef _leasehold leasehold\nhar:help: of it\nhtml\n", "compdef _leasehold leasehold\nfiles\n"},
		{"fish", "--no-config", fish, "har\thelp: of it\nhtml\n", "asked\nleasehold\nscript\n"},
	} {
		t.Run(tt.shell, func(t *testing.T) {
			dir, home := t.TempDir(), t.TempDir()
			var script, stderr bytes.Buffer
			if code := cli([]string{"completion", tt.shell}, strings.NewReader(""), &script, &stderr); code != 0 {
				t.Fatalf("exit status %d, want 0: %s", code, stderr.String())
			}
			write := func(name, text string, mode os.FileMode) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
					t.Fatal(err)
				}
			}
			write("script", script.String(), 0o600)
			for answer, want := range map[string]string{`har\thelp: of it\nhtml\t\n`: tt.want, "": tt.files} {
				write("leasehold", "#!/bin/sh\nIFS=,; echo \"$*\" >asked; printf '"+answer+"'\n", 0o700)
				cmd := exec.Command(tt.shell, tt.option, "-c", tt.program)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+home, "XDG_DATA_HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home, "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
				out, err := cmd.CombinedOutput()
				if err != nil || string(out) != want {
					t.Errorf("%q, %v, want %q (make deps installs the shells)", out, err, want)
				}
				if asked, err := os.ReadFile(filepath.Join(dir, "asked")); string(asked) != "complete,--,evidence,export,x,--format,\n" {
					t.Errorf("it was asked %q, %v", asked, err)
				}
			}
		})
	}
}

func TestEveryCommandAndFlagHasItsPlaceInTheManual(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man")
	if code := cli([]string{"man", dir}, strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	model := grammar(t)
	pages := manPages(model)
	for _, command := range commandsBelow(model) {
		page := pages[manName(command)+".1"]
		if !strings.Contains(pages["leasehold.1"], roff(manName(command)+"(1)")) {
			t.Errorf("leasehold.1 does not name %s", manName(command))
		}
		for _, group := range command.AllFlags(true) {
			for _, flag := range group {
				if !flag.Hidden && !strings.Contains(page, roff("--"+flag.Name)) {
					t.Errorf("%s.1 does not have --%s", manName(command), flag.Name)
				}
			}
		}
	}
	for _, name := range []string{"leasehold.1", "leasehold-run.1", "leasehold-evidence-export.1", "leasehold-profiles-create.1"} {
		if pages[name] == "" {
			t.Errorf("there is no %s", name)
		}
	}
	requests := []string{".TH", ".SH", ".B", ".PP", ".TP", ".nf", ".fi"}
	for name, page := range pages {
		for _, line := range regexp.MustCompile(`(?m)^[.'].*$`).FindAllString(page, -1) {
			if request, _, _ := strings.Cut(line, " "); !slices.Contains(requests, request) {
				t.Errorf("%s has the request %q", name, line)
			}
		}
	}
}
