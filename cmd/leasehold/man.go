package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"

	"leasehold"
)

// manCmd writes the manual pages, from the same grammar as --help.
type manCmd struct {
	Dir string `arg:"" type:"path" help:"The directory to write them to; it is made if need be."`
}

// Run writes a page for the program and one for each command. It replaces existing pages.
func (c *manCmd) Run(a *app) error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return fmt.Errorf("man: %w", err)
	}
	for name, page := range manPages(a.model) {
		if err := os.WriteFile(filepath.Join(c.Dir, name), []byte(page), 0o644); err != nil {
			return fmt.Errorf("man: %w", err)
		}
	}
	return nil
}

func manPages(grammar *kong.Node) map[string]string {
	pages := map[string]string{"leasehold.1": programPage(grammar)}
	for _, command := range commandsBelow(grammar) {
		name := manName(command)
		var p manPage
		p.title(name, command.Help)
		p.section("SYNOPSIS")
		p.bold("leasehold " + command.Path())
		p.text(synopsis(command))
		p.section("DESCRIPTION")
		p.paragraph(strings.TrimSpace(command.Help + "\n" + command.Detail))
		if len(command.Positional) > 0 {
			p.section("ARGUMENTS")
			for _, arg := range command.Positional {
				p.item(arg.Summary(), arg.Help)
			}
		}
		p.options(command)
		p.section("SEE ALSO")
		p.bold("leasehold")
		p.text("(1)")
		pages[name+".1"] = p.String()
	}
	return pages
}

// commandsBelow are the commands that a person can run. A default command has the name of the
// command whose default it is.
func commandsBelow(n *kong.Node) []*kong.Node {
	var all []*kong.Node
	for _, child := range n.Children {
		if child.Hidden {
			continue
		}
		if child.Leaf() {
			all = append(all, child)
		}
		all = append(all, commandsBelow(child)...)
	}
	return all
}

func manName(command *kong.Node) string {
	return "leasehold-" + strings.ReplaceAll(command.Path(), " ", "-")
}

func programPage(grammar *kong.Node) string {
	var p manPage
	p.title("leasehold", grammar.Help)
	p.section("SYNOPSIS")
	p.bold("leasehold")
	p.text("COMMAND [flags]")
	p.section("DESCRIPTION")
	p.paragraph(grammar.Help)
	p.section("COMMANDS")
	for _, command := range commandsBelow(grammar) {
		p.item(manName(command)+"(1)", command.Help)
	}
	p.section("EXIT STATUS")
	p.preformatted(exitCodesHelp())
	return p.String()
}

// synopsis is the arguments and the flags of a command, as --help shows them.
func synopsis(command *kong.Node) string {
	text := strings.TrimPrefix(command.Summary(), "leasehold ")
	_, rest, _ := strings.Cut(text+" ", lastWord(command.Path())+" ")
	return strings.TrimSpace(rest)
}

func lastWord(path string) string {
	words := strings.Fields(path)
	return words[len(words)-1]
}

// manPage is a page in the language of man(7).
type manPage struct{ strings.Builder }

func (p *manPage) title(name, what string) {
	fmt.Fprintf(p, ".TH %s 1 \"\" \"leasehold %s\" \"Leasehold\"\n", roff(strings.ToUpper(name)), roff(leasehold.Version))
	p.section("NAME")
	fmt.Fprintf(p, "%s \\- %s\n", roff(name), roff(strings.TrimSuffix(firstSentence(what), ".")))
}

func (p *manPage) section(name string) { fmt.Fprintf(p, ".SH %s\n", name) }

func (p *manPage) bold(text string) { fmt.Fprintf(p, ".B %s\n", roff(text)) }

func (p *manPage) text(text string) {
	if text != "" {
		fmt.Fprintln(p, roff(text))
	}
}

func (p *manPage) paragraph(text string) {
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(p, ".PP\n%s\n", roff(line))
	}
}

func (p *manPage) preformatted(text string) {
	fmt.Fprintf(p, ".nf\n%s\n.fi\n", roff(strings.TrimRight(text, "\n")))
}

func (p *manPage) item(name, help string) {
	fmt.Fprintf(p, ".TP\n.B %s\n%s\n", roff(name), roff(help))
}

// options are the flags of a command, with their defaults and variables.
func (p *manPage) options(command *kong.Node) {
	p.section("OPTIONS")
	for _, group := range command.AllFlags(true) {
		for _, flag := range group {
			if flag.Hidden {
				continue
			}
			name := "--" + flag.Name
			if !flag.IsBool() {
				name += "=" + flag.FormatPlaceHolder()
			}
			if flag.Short != 0 {
				name = "-" + string(flag.Short) + ", " + name
			}
			help := flag.Help
			if len(flag.Envs) > 0 {
				help += " Variable: " + strings.Join(flag.Envs, ", ") + "."
			}
			p.item(name, help)
		}
	}
}

// lineStart matches what a line of roff may not begin with, because it would be a request.
var lineStart = regexp.MustCompile(`(?m)^[.']`)

// roff is a text in the form that the language needs.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	return lineStart.ReplaceAllString(text, `\&$0`)
}
