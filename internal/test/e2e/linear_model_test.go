package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"leasehold/lease"
)

// leaseOp is what a client did to a profile through REST.
type leaseOp string

const (
	opAcquire leaseOp = "acquire"
	opWrite   leaseOp = "write" // a step, a heartbeat, a checkpoint
	opRelease leaseOp = "release"
	opReview  leaseOp = "review" // an approval
)

// leaseCall is an operation with the token that it carries; an acquisition carries none.
type leaseCall struct {
	op    leaseOp
	token lease.Token
}

// leaseAnswer is what the client was told. Of an acquisition that was done it has the token.
type leaseAnswer struct {
	answer
	token lease.Token
}

type answer string

const (
	done    answer = "done"
	refused answer = "refused"
	unknown answer = "unknown" // no answer, or one that says that nobody knows
)

// leasePhase is how far a profile is, as far as its clients can tell.
type leasePhase string

const (
	free leasePhase = "free"
	held leasePhase = "held"
	// lost: nobody has the profile. Its recovery goes on, or has freed it, or has put it
	// before a person.
	lost leasePhase = "lost"
)

// leaseState is a profile as the model has it. token is the newest one that anybody has or
// had; in phase lost a later one may have been used already.
type leaseState struct {
	phase leasePhase
	token lease.Token
}

// silently are the states into which a state may turn without any client's doing: a lease
// that is held may be lost at any time, and quarantine raises its token.
func (s leaseState) silently() []leaseState {
	if s.phase == held {
		return []leaseState{s, {lost, s.token + 1}}
	}
	return []leaseState{s}
}

// after are the states in which an operation with this answer may leave the profile; none
// where the answer cannot be true.
func (s leaseState) after(in leaseCall, out leaseAnswer) []leaseState {
	owns := s.phase == held && s.token == in.token
	reviewable := s.phase == lost && in.token >= s.token
	var did []leaseState // where it was carried out
	switch in.op {
	case opAcquire:
		if s.phase != held && out.answer == done && out.token > s.token {
			did = []leaseState{{held, out.token}}
		} else if s.phase != held && out.answer == unknown {
			did = []leaseState{{lost, s.token + 1}} // its capability is nobody's
		}
	case opWrite:
		if owns {
			did = []leaseState{s}
		}
	case opRelease:
		if owns {
			did = []leaseState{{free, s.token}}
		}
	case opReview:
		if reviewable {
			did = []leaseState{{free, in.token}}
		}
	}
	switch out.answer {
	case done:
		return did
	case unknown:
		return append(did, s)
	}
	// It was refused. The holder of a lease is not refused; others may be for many reasons,
	// such as a browser that still closes.
	if owns && in.op != opReview {
		return nil
	}
	return []leaseState{s}
}

// leaseModel is a profile: granted to one client at a time under rising tokens, written and
// released only by its holder, once, and freed by at most one review of each incident.
func leaseModel() porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{leaseState{free, 0}} },
		Step: func(state, input, output any) []any {
			var next []any
			for _, s := range state.(leaseState).silently() {
				for _, after := range s.after(input.(leaseCall), output.(leaseAnswer)) {
					next = append(next, after)
				}
			}
			return next
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%v -> %v", in, out) },
	}).ToModel()
}

// checkLeases tells whether some order of the operations, each at some time between its call
// and its answer, is one that the model allows.
func checkLeases(ops []porcupine.Operation) porcupine.CheckResult {
	// A client has one operation at a time; one whose outcome is unknown may still happen.
	ops = slices.Clone(ops)
	for i := range ops {
		if ops[i].Output.(leaseAnswer).answer == unknown {
			ops[i].ClientId, ops[i].Return = 1000+i, 1<<62
		}
	}
	return porcupine.CheckOperationsTimeout(leaseModel(), ops, time.Minute)
}

// told makes a history of operations, each after the answer of the one before.
func told(steps ...any) []porcupine.Operation {
	var ops []porcupine.Operation
	for i := 0; i < len(steps); i += 2 {
		at := int64(10 * len(ops))
		ops = append(ops, porcupine.Operation{Input: steps[i], Call: at, Output: steps[i+1], Return: at + 5})
	}
	return ops
}

// The judge finds what may not be, and lets pass what may.
func TestTheJudgeOfLeaseHistories(t *testing.T) {
	t.Parallel()
	acquire := leaseCall{op: opAcquire}
	call := func(op leaseOp, token lease.Token) leaseCall { return leaseCall{op, token} }
	granted := func(token lease.Token) leaseAnswer { return leaseAnswer{done, token} }
	ok, no, nobody := leaseAnswer{answer: done}, leaseAnswer{answer: refused}, leaseAnswer{answer: unknown}
	for _, c := range []struct {
		name string
		ops  []porcupine.Operation
		want porcupine.CheckResult
	}{
		{"one after the other", told(acquire, granted(1), call(opWrite, 1), ok, call(opRelease, 1), ok, acquire, granted(2)), porcupine.Ok},
		{"a lost one, reviewed", told(acquire, granted(1), call(opWrite, 1), no, acquire, no, call(opReview, 2), ok, acquire, granted(3)), porcupine.Ok},
		{"a grant that nobody heard of", told(acquire, nobody, acquire, no, acquire, granted(3)), porcupine.Ok},
		{"a release that nobody heard of", told(acquire, granted(1), call(opRelease, 1), nobody, acquire, granted(2)), porcupine.Ok},
		{"two holders", told(acquire, granted(1), acquire, granted(2)), porcupine.Illegal},
		{"a token again", told(acquire, granted(5), call(opRelease, 5), ok, acquire, granted(5)), porcupine.Illegal},
		{"a token that fell", told(acquire, granted(5), call(opRelease, 5), ok, acquire, granted(4)), porcupine.Illegal},
		{"a write under a stale token", told(acquire, granted(1), call(opWrite, 1), no, acquire, granted(3), call(opWrite, 1), ok), porcupine.Illegal},
		{"a holder that comes back", told(acquire, granted(1), call(opWrite, 1), no, call(opWrite, 1), ok), porcupine.Illegal},
		{"a write after the release", told(acquire, granted(1), call(opRelease, 1), ok, call(opWrite, 1), ok), porcupine.Illegal},
		{"a release twice", told(acquire, granted(1), call(opRelease, 1), ok, call(opRelease, 1), ok), porcupine.Illegal},
		{"a lost one without a higher token", told(acquire, granted(1), call(opWrite, 1), no, acquire, granted(2)), porcupine.Illegal},
		{"one incident reviewed twice", told(acquire, granted(1), call(opReview, 2), ok, call(opReview, 2), ok), porcupine.Illegal},
		{"a review of what was released", told(acquire, granted(1), call(opRelease, 1), ok, call(opReview, 1), ok), porcupine.Illegal},
		{"a review of an earlier incident", told(acquire, granted(1), call(opReview, 2), ok, acquire, granted(3), call(opWrite, 3), no, call(opReview, 2), ok), porcupine.Illegal},
	} {
		if got := checkLeases(c.ops); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// byCall sorts operations by the time of their call, for a person who reads them.
func byCall(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) }
