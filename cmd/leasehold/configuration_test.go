package main

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

const configurationPage = "../../docs/configuration.md"

// defaultInHelp is the default as the help of a flag tells it, at its end.
var defaultInHelp = regexp.MustCompile(`(?s)^(.*?)\s*\(default: (.*)\)\.?$`)

// meaningOf splits the help of a flag into what it means and what it is by default.
func meaningOf(f *kong.Flag) (meaning, value string) {
	meaning = f.Help
	if parts := defaultInHelp.FindStringSubmatch(f.Help); parts != nil {
		meaning, value = parts[1], parts[2]
	}
	if value == "" && f.HasDefault {
		value = f.Default
	}
	if value == "" && f.IsBool() {
		value = "off"
	}
	if f.Required {
		value = "has to be given"
	}
	if !strings.HasSuffix(meaning, ".") {
		meaning += "."
	}
	return meaning, cmp.Or(value, "none")
}

// seeAlso is the name of a page, in a help text.
var seeAlso = regexp.MustCompile(`\(?(?:see )?docs/(\w+)\.md\)?`)

// inTable is a text as a cell of a table, where a bar would end it.
func inTable(text string) string {
	return seeAlso.ReplaceAllString(strings.ReplaceAll(text, "|", `\|`), "([$1]($1.md))")
}

// flagRow is the row of a flag. A setting has a variable, and a key of the same name as the
// flag.
func flagRow(f *kong.Flag) string {
	name := "--" + f.Name
	switch {
	case f.Tag.Negatable != "":
		name = "--[no-]" + f.Name
	case !f.IsBool():
		name += " " + strings.Trim(f.FormatPlaceHolder(), `"`)
	}
	variable, key := "-", "-"
	if len(f.Envs) > 0 {
		variable, key = "`"+strings.Join(f.Envs, "`, `")+"`", "`"+f.Name+"`"
		if f.Name == "config" {
			key = "-"
		}
	}
	meaning, value := meaningOf(f)
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", inTable(name), variable, key, inTable(value), inTable(meaning))
}

const flagsHead = "\n| flag | variable | YAML key | default | meaning |\n| --- | --- | --- | --- | --- |\n"

// of every command that asks a sidecar.
var clientFlagNames = []string{"url", "token-file", "json"}

func isClient(command *kong.Node) bool {
	return slices.ContainsFunc(command.Flags, func(f *kong.Flag) bool { return f.Name == "url" && slices.Equal(f.Envs, []string{"LEASEHOLD_URL"}) })
}

const configurationHead = `# Configuration

Every flag of every command, and the exit codes. The settings that are met first, with more words, are
[in the README](../README.md#settings); refusals of the sidecar have codes of their own, [problems](problems.md).
This page is made from the grammar that ~--help~ and the manual pages (~make man~) are made of. After a change, write
it anew: ~go test ./cmd/leasehold -run TestThePageShowsEveryFlag -update~.

## Where a setting can be given

A flag that has a variable is a setting. It can be given as the flag, as the variable, or in one YAML file
(~--config FILE~) under its key. A flag goes before a variable, a variable before the file. The keys of all commands
may stand in one file; a key that no command knows is refused. A file ~leasehold.yaml~:

<!-- run: as leasehold.yaml -->
~~~yaml
lease-ttl: 45s
max-browsers: 8
browser-memory: 2GiB
file-root: /tmp,/var/tmp
~~~

<!-- run: server -->
~~~console
$ LEASEHOLD_COOLDOWN=10s leasehold run --config leasehold.yaml --max-browsers 4
leasehold is ready at http://127.0.0.1:9333 ...
~~~

Durations are written as ~90s~, ~10m~ or ~24h~, sizes as ~64MiB~ or ~20GiB~. A flag that takes several values takes
them separated by commas, or is given again. A flag that is on or off takes ~=true~ or ~=false~, in a variable and in
the file just these words; where the table has ~--[no-]~, both forms exist as flags.

## Every command

`

func configurationText(t *testing.T, grammar *kong.Node) string {
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(configurationHead, "~", "`"))
	b.WriteString(strings.TrimPrefix(flagsHead, "\n"))
	for _, f := range grammar.Flags {
		if f.Name != "help" {
			b.WriteString(flagRow(f))
		}
	}
	b.WriteString("\n## Commands that ask a sidecar\n" + flagsHead)
	commands := commandsBelow(grammar)
	first := slices.IndexFunc(commands, isClient)
	for _, f := range commands[first].Flags {
		if slices.Contains(clientFlagNames, f.Name) {
			b.WriteString(flagRow(f))
		}
	}
	seen, runRows := map[string]bool{}, ""
	for _, command := range commands {
		if seen[command.Path()] {
			continue
		}
		seen[command.Path()] = true
		var rows strings.Builder
		asks := isClient(command)
		for _, group := range command.AllFlags(true) {
			for _, f := range group {
				of := slices.Contains(clientFlagNames, f.Name) && asks || f.Name == "help" || slices.Contains(grammar.Flags, f)
				if !of && !f.Hidden {
					rows.WriteString(flagRow(f))
				}
			}
		}
		fmt.Fprintf(&b, "\n## leasehold %s\n\n%s", command.Path(), command.Help)
		if asks {
			b.WriteString("\nIt [asks a sidecar](#commands-that-ask-a-sidecar).")
		}
		b.WriteString("\n")
		if command.Detail != "" {
			fmt.Fprintf(&b, "\n%s\n", command.Detail)
		}
		if len(command.Positional) > 0 {
			b.WriteString("\n| argument | meaning |\n| --- | --- |\n")
			for _, arg := range command.Positional {
				fmt.Fprintf(&b, "| `%s` | %s |\n", inTable(arg.Summary()), inTable(arg.Help))
			}
		}
		switch {
		case strings.Contains(rows.String(), runRows) && runRows != "":
			b.WriteString("\nIt takes every setting of [run](#leasehold-run), and besides:\n")
			b.WriteString(flagsHead + strings.Replace(rows.String(), runRows, "", 1))
		case rows.Len() > 0:
			b.WriteString(flagsHead + rows.String())
		}
		if command.Path() == "run" {
			runRows = rows.String()
		}
	}
	b.WriteString("\n## Exit codes\n\n| exit code | meaning |\n| --- | --- |\n")
	for _, e := range exitMeanings {
		fmt.Fprintf(&b, "| %d | %s |\n", e.code, e.meaning)
	}
	b.WriteString("\n`exec`" + strings.TrimPrefix(exitStatuses, "exec"))
	b.WriteString(`
## Variables of others

| variable | meaning |
| --- | --- |
| ` + "`XDG_STATE_HOME`, `HOME`" + ` | where the data directory is by default |
| ` + "`DISPLAY`, `WAYLAND_DISPLAY`" + ` | with neither of them browsers are headless by default |
| ` + "`AWS_ACCESS_KEY_ID`" + ` and the others of the AWS tools | credentials of an ` + "`s3://`" + ` store of evidence |
| ` + "`USER`" + ` | who decides, where ` + "`leasehold review`" + ` has no ` + "`--reviewer`" + ` |
| ` + "`TERM`" + ` | with ` + "`dumb`" + ` no progress is drawn |
`)
	return b.String()
}

func TestThePageShowsEveryFlag(t *testing.T) {
	want := configurationText(t, grammar(t))
	if *update {
		if err := os.WriteFile(configurationPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(configurationPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/configuration.md is not what the command line takes: run this test with -update")
	}
	settings := settingNames(grammar(t))
	for _, name := range settings {
		if !strings.Contains(want, "| `"+name+"` |") {
			t.Errorf("the setting %s has no row", name)
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `--.*?` \\| `LEASEHOLD_.*?` \\| `(.*?)` \\|").FindAllStringSubmatch(want, -1) {
		if !slices.Contains(settings, row[1]) {
			t.Errorf("the key %s has a row, and a file with it is refused", row[1])
		}
	}
	codes := map[int]bool{}
	for _, e := range exitMeanings {
		if codes[e.code] {
			t.Errorf("exit code %d has two meanings", e.code)
		}
		codes[e.code] = true
	}
}
