package main

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"leasehold/lease"
)

// completionCmd prints the script that a shell needs to complete command lines. The candidates
// come from the grammar itself, by completeCmd.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

// The scripts ask the binary whose command line is completed, so that they fit every version of
// it. What it does not know is completed as a file name.
var completionScripts = map[string]string{
	"bash": `# To load it now: source <(leasehold completion bash)
# For every shell:  leasehold completion bash > ~/.local/share/bash-completion/completions/leasehold
_leasehold() {
    local IFS=$'\n' found
    found=$("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f 1)
    COMPREPLY=($found)
}
complete -o default -F _leasehold leasehold
`,
	"zsh": `#compdef leasehold
# To load it now: source <(leasehold completion zsh)
# For every shell, in a directory of $fpath: leasehold completion zsh > _leasehold
_leasehold() {
    local -a found
    local line name help
    for line in "${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] || continue
        name=${${line%%$'\t'*}//:/\\:} help=${line#*$'\t'}
        found+=("$name${help:+:$help}")
    done
    if (( $#found )); then
        _describe leasehold found
    else
        _files
    fi
}
if [[ ${funcstack[1]} == _leasehold ]]; then
    _leasehold "$@"
else
    compdef _leasehold leasehold
fi
`,
	"fish": `# To load it now: leasehold completion fish | source
# For every shell: leasehold completion fish > ~/.config/fish/completions/leasehold.fish
function __leasehold_complete
    set -l words (commandline -opc)
    $words[1] complete -- $words[2..] (commandline -ct) 2>/dev/null
end
complete -c leasehold -n 'test -n "$(__leasehold_complete)"' -f -a '(__leasehold_complete)'
`,
}

// Run prints the script.
func (c *completionCmd) Run(a *app) error {
	_, err := fmt.Fprint(a.stdout, completionScripts[c.Shell])
	return err
}

// completeCmd prints how a command line can continue: one candidate on each line, with its
// meaning after a tab. It prints nothing if a file name is wanted, or nothing is known.
type completeCmd struct {
	clientFlags `embed:""`
	Words       []string `arg:"" optional:"" passthrough:"" help:"The words of the command line, the last one as far as it is typed."`
}

// profilesTimeout is how long a completion may wait for the names of profiles.
const profilesTimeout = time.Second

// Run prints the candidates. It never fails, because a shell could not show the error.
func (c *completeCmd) Run(a *app) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	for _, found := range complete(a.model, words, c.profiles) {
		fmt.Fprintln(a.stdout, printable(found.text)+"\t"+printable(found.help))
	}
	return nil
}

// profiles asks the sidecar for the names of profiles; it returns none if that does not
// answer at once.
func (c *completeCmd) profiles() []string {
	sidecar, err := c.client()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), profilesTimeout)
	defer cancel()
	raw, err := sidecar.ask(ctx, http.MethodGet, nil, "v1", "profiles")
	if err != nil {
		return nil
	}
	records, err := read[list[lease.Record]](raw)
	if err != nil {
		return nil
	}
	var names []string
	for _, r := range records.Items {
		names = append(names, r.ProfileID)
	}
	slices.Sort(names)
	return names
}

// candidate is one way in which a command line can continue.
type candidate struct{ text, help string }

// complete returns how a command line can continue. The last word is the one being typed, and
// may be empty. profiles is called if the name of a profile is wanted.
func complete(grammar *kong.Node, words []string, profiles func() []string) []candidate {
	typed := ""
	if n := len(words); n > 0 {
		typed, words = words[n-1], words[:n-1]
	}
	at := place{node: grammar}
	for _, w := range words {
		if !at.take(w) {
			return nil
		}
	}
	if typed == "=" { // bash makes it a word of its own
		typed = ""
	}
	var found []candidate
	offer := func(text, help string) {
		if strings.HasPrefix(text, typed) {
			found = append(found, candidate{text, firstSentence(help)})
		}
	}
	if at.flag != nil {
		if at.flag.Name == "profile" {
			for _, name := range profiles() {
				offer(name, "profile")
			}
		}
		for _, value := range valuesOf(at.flag.Value) {
			offer(value, "")
		}
		return found
	}
	if strings.HasPrefix(typed, "-") {
		if name, value, given := strings.Cut(typed, "="); given {
			if flag := at.find(name); flag != nil {
				for _, v := range valuesOf(flag.Value) {
					if strings.HasPrefix(v, value) {
						found = append(found, candidate{name + "=" + v, ""})
					}
				}
			}
			return found
		}
		for _, flag := range at.flags() {
			if !flag.Hidden {
				offer("--"+flag.Name, flag.Help)
			}
		}
		return found
	}
	if at.args == 0 {
		for _, child := range at.node.Children {
			if !child.Hidden {
				offer(child.Name, child.Help)
			}
		}
	}
	for _, arg := range at.positional() {
		if arg.Target.Type() == reflect.TypeFor[profileArg]() {
			for _, name := range profiles() {
				offer(name, "profile")
			}
		}
		for _, value := range valuesOf(arg) {
			offer(value, "")
		}
	}
	return found
}

// place is the position in the grammar that a command line has reached.
type place struct {
	node *kong.Node
	args int        // of the command
	flag *kong.Flag // its value is expected next
}

// take takes the next word; false if nothing is known about what follows.
func (p *place) take(word string) bool {
	switch {
	case p.flag != nil && word == "=": // bash makes it a word of its own
	case p.flag != nil:
		p.flag = nil
	case word == "--":
		return false
	case strings.HasPrefix(word, "-"):
		name, _, given := strings.Cut(word, "=")
		if flag := p.find(name); flag != nil && !given && !flag.IsBool() {
			p.flag = flag
		}
	default:
		for _, child := range p.node.Children {
			if p.args == 0 && child.Name == word {
				p.node = child
				return true
			}
		}
		p.args++
	}
	return true
}

// command is the command at this position; the default one if none was named.
func (p *place) command() *kong.Node {
	if p.node.DefaultCmd != nil {
		return p.node.DefaultCmd
	}
	return p.node
}

func (p *place) flags() []*kong.Flag {
	var all []*kong.Flag
	for _, group := range p.command().AllFlags(true) {
		all = append(all, group...)
	}
	return all
}

func (p *place) find(name string) *kong.Flag {
	for _, flag := range p.flags() {
		if "--"+flag.Name == name || flag.Short != 0 && "-"+string(flag.Short) == name {
			return flag
		}
	}
	return nil
}

// positional is the argument that comes next, if there is one.
func (p *place) positional() []*kong.Value {
	all := p.command().Positional
	if p.args >= len(all) {
		return nil
	}
	return all[p.args : p.args+1]
}

// valuesOf are the values that a flag or an argument can have; none if there is no list of
// them.
func valuesOf(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return v.EnumSlice()
}

// firstSentence shortens a help text to what fits beside a candidate.
func firstSentence(help string) string {
	first, _, _ := strings.Cut(help, ". ")
	return strings.TrimSuffix(first, ".")
}
