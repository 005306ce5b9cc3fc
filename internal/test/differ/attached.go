package differ

import (
	"regexp"
	"slices"
	"strings"
)

// attachedChanges is the exception for changes of a target's member attached.
const attachedChanges = "the observer is attached to every page"

const infoChanged = `{"method":"Target.targetInfoChanged",`

var (
	attachedMember = regexp.MustCompile(`"attached":(true|false)`)
	titleMember    = regexp.MustCompile(`"title":"(\\.|[^"\\])*"`)
	numberOf       = regexp.MustCompile(`<([a-z ]+) \d+>`)
)

// info returns what a message says of a target, except whether somebody is attached to it;
// empty where it describes none. Values have no numbers in it, since those of messages
// without an order have none.
func info(line string) string {
	_, rest, _ := strings.Cut(line, `"targetInfo":`)
	end := skip([]byte(rest), 0)
	if end <= 0 {
		return ""
	}
	return numberOf.ReplaceAllString(attachedMember.ReplaceAllString(rest[:end], `"attached":<attached>`), "<$1>")
}

// untitled is info without the title. Chrome reports no change of a title by itself: a
// client hears of it with the next change, which on the port may be that somebody attaches.
func untitled(line string) string {
	return titleMember.ReplaceAllString(info(line), `"title":<title>`)
}

// anyOrder is what the name of a stream ends with that has no order.
const anyOrder = " in any order"

// attachedAlone returns the changes of targets in a stream that tell nothing but whether
// somebody is attached: the same CDP session was told all else before, as info has it.
func attachedAlone(all []stream, name string, info func(string) string) map[string]bool {
	base := strings.TrimSuffix(name, anyOrder)
	other := base
	if name == base {
		other = base + anyOrder
	}
	told := map[string]bool{}
	for _, line := range called(all, other).lines {
		told[info(line)] = true
	}
	alone := map[string]bool{}
	for _, line := range called(all, name).lines {
		if about := info(line); about != "" {
			if told[about] && strings.HasPrefix(line, infoChanged) {
				alone[line] = true
			}
			told[about] = true
		}
	}
	return alone
}

// leaveOutAttached takes out of the difference of a stream the changes of targets that are
// about the member attached alone.
func leaveOutAttached(port, through []stream, name string, d Difference, met map[string]int) Difference {
	before := len(d.Port) + len(d.Through)
	for _, line := range slices.Clone(d.Port) {
		if j := slices.IndexFunc(d.Through, func(l string) bool { return strings.HasPrefix(l, infoChanged) && info(l) == info(line) }); j >= 0 && strings.HasPrefix(line, infoChanged) {
			i := slices.Index(d.Port, line)
			d.Port, d.Through = slices.Delete(slices.Clone(d.Port), i, i+1), slices.Delete(slices.Clone(d.Through), j, j+1)
		}
	}
	onPort, onSidecar := attachedAlone(port, name, untitled), attachedAlone(through, name, info)
	d.Port = slices.DeleteFunc(slices.Clone(d.Port), func(l string) bool { return onPort[l] })
	d.Through = slices.DeleteFunc(slices.Clone(d.Through), func(l string) bool { return onSidecar[l] })
	if n := before - len(d.Port) - len(d.Through); n > 0 {
		met[attachedChanges] += n
	}
	return d
}
