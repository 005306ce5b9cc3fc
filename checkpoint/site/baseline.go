package site

import "strings"

// Baseline is what sites told of an account at one moment of a session, while its worker went on: what they
// tell later is compared with it.
type Baseline struct {
	// Checkpoint is the number in the journal of the safe checkpoint that was named at that moment, and
	// Name is its name; 0: the session was granted.
	Checkpoint uint64 `json:"checkpoint,omitempty"`
	Name       string `json:"name,omitempty"`
	// Told has the answers by the ids of questions, and Missing why there is none that counts.
	Told    map[string]Kept   `json:"told,omitempty"`
	Missing map[string]string `json:"missing,omitempty"`
}

// moment says in words when it was.
func (b Baseline) moment() string {
	if b.Checkpoint == 0 {
		return "the grant"
	}
	return "checkpoint " + b.Name
}

// Add adds the baseline of a later moment, and leaves out what no comparison needs any more: of
// checkpoints only the last answer to each question counts.
func Add(all []Baseline, next Baseline) []Baseline {
	var list []Baseline
	for _, b := range all {
		if b.Checkpoint != 0 {
			told := map[string]Kept{}
			for id, k := range b.Told {
				if _, again := next.Told[id]; !again {
					told[id] = k
				}
			}
			b.Told, b.Missing = told, nil
			if len(told) == 0 {
				continue
			}
		}
		list = append(list, b)
	}
	return append(list, next)
}

// Origin says with what an answer is compared.
type Origin struct {
	// Of is the moment of that answer, in words; empty: nobody used the account then.
	Of string
	// Why is why no later answer is there; empty: none was due.
	Why string
	// Earlier says that it is from before the moment since which an answer of now is to prove that nothing was
	// done: what it shows may have changed until that moment, and back after it, so that it proves nothing.
	Earlier bool
}

// Before is the answer to a question with which one of now is compared: the last that was given at rest,
// at the grant, or at a checkpoint up to this one; 0: at none. rest is the answer at rest, and token the one that
// the profile had until the session was granted: if rest was told under another one, the profile was used since, or
// came from another host. Whose account it is has to be the same all the same.
func Before(q Question, rest Kept, token uint64, all []Baseline, checkpoint uint64) (before Kept, from Origin) {
	before = rest
	var last uint64 // the moment of before
	asked := checkpoint == 0
	for _, b := range all {
		if b.Checkpoint > checkpoint {
			continue
		}
		if k, told := b.Told[q.ID()]; told && k.Means == q.Means() {
			before, from, last = k, Origin{Of: "the answer at " + b.moment()}, b.Checkpoint
		} else if why, missing := b.Missing[q.ID()]; missing {
			from.Why = "at " + b.moment() + " " + why
			asked = asked || b.Checkpoint == checkpoint
		}
	}
	add := func(why string) { from.Earlier, from.Why = true, strings.TrimPrefix(from.Why+"; "+why, "; ") }
	if from.Of == "" && rest.Means == q.Means() && (rest.Token == 0 || rest.Token != token) && !q.Identity {
		add("the profile may have been used since then")
	}
	if last != checkpoint && len(q.Probe.Covers) > 0 {
		if from.Earlier = true; !asked {
			add("it was not asked at the last safe checkpoint")
		}
	}
	return before, from
}
