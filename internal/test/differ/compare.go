package differ

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// stream is what a client received of one connection in one CDP session, in order; or
// the messages of it that have no order.
type stream struct {
	name  string
	lines []string
}

// Transcript returns the play as it is compared, for people.
func (p *Play) Transcript(s *Script) string {
	var b strings.Builder
	for _, in := range p.streams(s) {
		fmt.Fprintf(&b, "%s:\n", in.name)
		for _, line := range in.lines {
			fmt.Fprintf(&b, "  %.600s\n", line)
		}
	}
	return b.String()
}

// streams returns the play as it is compared: a stream for each connection and each of its
// CDP sessions, in the order in which they were told of.
func (p *Play) streams(s *Script) []stream {
	pl := newPlainer(p, s)
	p.added = pl.added
	var all []stream
	for _, c := range p.conns {
		all = append(all, connStreams(c, s, pl)...)
	}
	if len(p.http) > 0 {
		in := stream{name: "http"}
		for _, raw := range p.http {
			in.lines = append(in.lines, pl.plain(raw))
		}
		all = append(all, in)
	}
	if p.Failed != nil {
		all = append(all, stream{"script", []string{pl.text(p.Failed.Error())}})
	}
	return all
}

func connStreams(c *conn, s *Script, pl *plainer) []stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	bySession := map[string][]message{}
	var order []string
	for _, m := range c.received {
		if _, ok := bySession[m.session]; !ok {
			order = append(order, m.session)
		}
		if m.method == "" || !matches(s.drops, m.method) {
			bySession[m.session] = append(bySession[m.session], m)
		}
	}
	var all []stream
	if len(order) > 0 && order[0] != "" || len(order) == 0 {
		order = append([]string{""}, order...)
	}
	left := order
	for len(left) > 0 {
		// The root comes first, then those with a name or a number, the lowest first:
		// the order in which sessions speak is chance.
		slices.SortStableFunc(left, func(a, b string) int { return strings.Compare(pl.rank(a), pl.rank(b)) })
		session := left[0]
		left = left[1:]
		in := stream{name: c.name}
		if session != "" {
			in.name += "/" + pl.text(session)
		}
		set := stream{name: in.name + anyOrder}
		for _, m := range bySession[session] {
			if m.method != "" && matches(s.sets, m.method) {
				pl.counting = false
				set.lines = append(set.lines, pl.plain(m.raw))
				pl.counting = true
				continue
			}
			in.lines = append(in.lines, pl.plain(m.raw))
		}
		if session == "" && c.ended != "" {
			in.lines = append(in.lines, "ended: "+c.ended)
		}
		slices.Sort(set.lines)
		all = append(all, in)
		if len(set.lines) > 0 {
			all = append(all, set)
		}
	}
	return all
}

// rank sorts sessions: the root, those that the script named, those that were told of.
func (p *plainer) rank(session string) string {
	switch {
	case session == "":
		return ""
	case p.labels[session] != "":
		return "1" + p.labels[session]
	case p.seen["id"][session] > 0:
		return fmt.Sprintf("2%06d", p.seen["id"][session])
	}
	return "3"
}

// Difference is how two plays of a script differ in one stream.
type Difference struct {
	Stream string
	// Port has the lines that only the port has, or has elsewhere; Through those of the
	// sidecar.
	Port, Through []string
}

func (d Difference) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "on %s:\n", d.Stream)
	from := 0
	if len(d.Port) == 1 && len(d.Through) == 1 {
		from = d.begins()
	}
	for _, line := range d.Port {
		fmt.Fprintf(&b, "  port     %.1500s\n", line[from:])
	}
	for _, line := range d.Through {
		fmt.Fprintf(&b, "  sidecar  %.1500s\n", line[from:])
	}
	return b.String()
}

// begins returns an index some way before the place where two lines begin to differ: most
// messages are long, and differ in one member.
func (d Difference) begins() int {
	const before = 200
	a, b := d.Port[0], d.Through[0]
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	return max(0, i-before)
}

// Compare returns where two plays differ, except for what the list of exceptions explains,
// and how often each exception did, by its name. It also counts what was compared.
func Compare(s *Script, port, through *Play) (left []Difference, met map[string]int, messages int) {
	met = map[string]int{}
	a, b := port.streams(s), through.streams(s)
	for _, added := range []map[string]int{port.added, through.added} {
		for name := range added {
			met[name] = max(met[name], added[name])
		}
	}
	for _, name := range streamNames(a, b) {
		x, y := called(a, name), called(b, name)
		messages += len(x.lines)
		d := explain(s, leaveOutAttached(a, b, name, diff(x, y), met), met)
		if d.Stream = name; len(d.Port)+len(d.Through) > 0 {
			left = append(left, d)
		}
	}
	return left, met, messages
}

// streamNames returns the names of the streams of two plays.
func streamNames(a, b []stream) []string {
	var list []string
	for _, in := range slices.Concat(a, b) {
		if !slices.Contains(list, in.name) {
			list = append(list, in.name)
		}
	}
	return list
}

// called returns the stream with a name; an empty one if there is none.
func called(all []stream, name string) stream {
	for _, in := range all {
		if in.name == name {
			return in
		}
	}
	return stream{name: name}
}

// diff returns what only one of two streams has, by their longest common subsequence.
func diff(a, b stream) Difference {
	x, y := a.lines, b.lines
	length := make([][]int, len(x)+1)
	for i := range length {
		length[i] = make([]int, len(y)+1)
	}
	for i := len(x) - 1; i >= 0; i-- {
		for j := len(y) - 1; j >= 0; j-- {
			if x[i] == y[j] {
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	var d Difference
	i, j := 0, 0
	for i < len(x) || j < len(y) {
		switch {
		case i < len(x) && j < len(y) && x[i] == y[j]:
			i, j = i+1, j+1
		case j == len(y) || i < len(x) && length[i+1][j] >= length[i][j+1]:
			d.Port = append(d.Port, x[i])
			i++
		default:
			d.Through = append(d.Through, y[j])
			j++
		}
	}
	return d
}

// explain takes out of a difference what exceptions explain.
func explain(s *Script, d Difference, met map[string]int) Difference {
	for _, e := range Exceptions {
		if !matches(e.Scripts, s.Name) || e.port == nil && e.through == nil {
			continue
		}
		for {
			i, ok := find(d.Port, e.port)
			j, ok2 := find(d.Through, e.through)
			if !ok || !ok2 {
				break
			}
			met[e.Name]++
			if i >= 0 {
				d.Port = slices.Delete(slices.Clone(d.Port), i, i+1)
			}
			if j >= 0 {
				d.Through = slices.Delete(slices.Clone(d.Through), j, j+1)
			}
		}
	}
	return d
}

// find returns the first line that a pattern matches. Without a pattern nothing has to be
// found: the index is then -1.
func find(lines []string, p *regexp.Regexp) (int, bool) {
	if p == nil {
		return -1, true
	}
	i := slices.IndexFunc(lines, p.MatchString)
	return i, i >= 0
}
