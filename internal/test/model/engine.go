package model

import (
	"container/heap"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"
)

// engine is the virtual time: it carries out events in order, some of which wake tasks.
type engine struct {
	rng   *rand.Rand
	now   int64 // nanoseconds since the world began
	queue events
	count uint64
	steps int
	trace ring
	found *Violation
}

type event struct {
	at    int64
	order uint64
	do    func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].order < q[j].order
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = event{}
	*q = (*q)[:last]
	return e
}

// after lets do happen after d.
func (e *engine) after(d time.Duration, do func()) {
	e.count++
	heap.Push(&e.queue, event{e.now + int64(max(d, 0)), e.count, do})
}

// run carries out events until there were that many steps or a rule was broken.
func (e *engine) run(steps int) {
	for e.steps < steps && e.found == nil && len(e.queue) > 0 {
		next := heap.Pop(&e.queue).(event)
		e.now = next.at
		e.steps++
		next.do()
	}
}

// chance is true with the probability p.
func (e *engine) chance(p float64) bool { return p > 0 && e.rng.Float64() < p }

// upTo returns a random time up to d. In a quarter of all cases it is next to nothing, and in
// another quarter nearly all of d.
func (e *engine) upTo(d time.Duration) time.Duration {
	x := e.rng.Float64()
	switch e.rng.IntN(4) {
	case 0:
		x *= 0.001
	case 1:
		x = 1 - x*0.001
	}
	return time.Duration(x * float64(d))
}

// logf adds an entry to the trace.
func (e *engine) logf(format string, args ...any) { e.trace.add(entry{e.now, format, args}) }

// broken ends the run, as one in which the rule was broken.
func (e *engine) broken(rule, format string, args ...any) {
	if e.found != nil {
		return
	}
	why := fmt.Sprintf(format, args...)
	e.logf("BROKEN: %s: %s", rule, why)
	e.found = &Violation{Rule: rule, Why: why, Step: e.steps, At: time.Duration(e.now), Trace: e.trace.lines()}
}

// task is a thread of a process. It runs until it waits.
type task struct {
	p      *process
	resume func() (struct{}, bool)
	kill   func()
	yield  func(struct{}) bool
	// waits counts the waits, so that a wake-up for an earlier one is ignored.
	waits uint64
	over  bool
}

type killed struct{}

// spawn starts a task of the process, which runs body at once.
func (p *process) spawn(body func(t *task)) {
	t := &task{p: p}
	t.resume, t.kill = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			t.over = true
			if r := recover(); r != nil && r != (killed{}) {
				panic(r)
			}
		}()
		t.yield = yield
		body(t)
	})
	p.tasks[t] = true
	p.w.after(0, func() { t.wake(0) })
}

// wait parks the task until wake is called with the number of this wait.
func (t *task) wait() {
	if !t.yield(struct{}{}) {
		panic(killed{})
	}
}

// await begins a wait and returns its number.
func (t *task) await() uint64 {
	t.waits++
	return t.waits
}

// wake resumes the task if it is still in the wait with that number. If the process is
// stopped, that happens as soon as it runs again.
func (t *task) wake(wait uint64) {
	if t.over || t.p.dead || wait != t.waits {
		return
	}
	if until := t.p.stopped(); until > t.p.w.now {
		t.p.w.after(time.Duration(until-t.p.w.now), func() { t.wake(wait) })
		return
	}
	if _, more := t.resume(); !more {
		delete(t.p.tasks, t)
	}
}

// sleep waits for d by the clock of the host. It ends late if the process or the host was
// stopped meanwhile.
func (t *task) sleep(d time.Duration) {
	wait := t.await()
	w := t.p.w
	d = time.Duration(float64(max(d, 0)) / t.p.host.rate)
	if w.chance(0.01) {
		d += w.upTo(400 * time.Millisecond) // a busy host
	}
	w.after(d, func() { t.wake(wait) })
	t.wait()
}

// ring has the last entries of the trace.
type ring struct {
	all  [traceLength]entry
	next int
}

const traceLength = 400

type entry struct {
	at     int64
	format string
	args   []any
}

func (r *ring) add(e entry) {
	r.all[r.next%traceLength] = e
	r.next++
}

func (r *ring) lines() (lines []string) {
	for i := max(0, r.next-traceLength); i < r.next; i++ {
		e := r.all[i%traceLength]
		lines = append(lines, fmt.Sprintf("%12.3fs  ", float64(e.at)/1e9)+fmt.Sprintf(e.format, e.args...))
	}
	return lines
}

// Violation is a rule that was broken, with the trace of what led to it.
type Violation struct {
	Rule, Why string
	Step      int
	At        time.Duration
	Trace     []string
}
