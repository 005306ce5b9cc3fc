package accountcheck

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"leasehold/checkpoint/site"
	"leasehold/internal/durable"
	"leasehold/internal/signed"
	"leasehold/lease"
)

// Memory remembers what sites answered about accounts while nobody used them, in a signed file for
// each profile. Values are kept as keyed digests, beside the short text that people are shown.
type Memory struct {
	dir string
	key *signed.Key
}

// NewMemory returns the memory in a launcher's data directory.
func NewMemory(dataDir string, key *signed.Key) Memory {
	return Memory{filepath.Join(dataDir, "answers"), key}
}

func (m Memory) path(profile string) string {
	return filepath.Join(m.dir, lease.FileName(profile)+".json")
}

// Load returns what is remembered of a profile's account, by the ids of questions. Of a file that
// somebody else wrote nothing is believed.
func (m Memory) Load(profile string) (map[string]site.Kept, error) {
	kept := map[string]site.Kept{}
	b, err := os.ReadFile(m.path(profile))
	if errors.Is(err, fs.ErrNotExist) {
		return kept, nil
	}
	if err == nil {
		b, err = m.key.Open(signed.Answers, profile, b)
	}
	if err == nil {
		err = json.Unmarshal(b, &kept)
	}
	if err != nil {
		return map[string]site.Kept{}, fmt.Errorf("what sites answered about %s: %w", profile, err)
	}
	return kept, nil
}

// Keep remembers answers that were given under this lease token. What a site did not tell is forgotten, so that
// nothing is compared with what was true before the last session; but not whose account it was.
func (m Memory) Keep(profile string, token lease.Token, answers []site.Answer, now time.Time) error {
	if len(answers) == 0 {
		return nil
	}
	kept, _ := m.Load(profile) // of what cannot be believed, nothing is kept
	for _, a := range answers {
		before, had := kept[a.ID()]
		if a.State != site.Told {
			if !a.Identity {
				delete(kept, a.ID())
			}
			continue
		}
		next := m.Baseline(profile, a, now)
		next.Token = uint64(token)
		if a.Identity {
			next.Text = ""
		}
		next.Moved = had && before.Means == next.Means && (before.Moved || before.Digest != next.Digest)
		kept[a.ID()] = next
	}
	b, err := json.Marshal(kept)
	if err == nil {
		err = os.MkdirAll(m.dir, 0o700)
	}
	if err == nil {
		err = durable.Replace(m.path(profile), m.key.Sign(signed.Answers, profile, b))
	}
	if err != nil {
		return fmt.Errorf("what sites answered about %s is not remembered: %w", profile, err)
	}
	return nil
}

// Compare compares answers about a profile's account with those that were kept at rest, and with the
// baselines of its session up to this checkpoint. token is the one under which the session was granted.
func (m Memory) Compare(profile string, token lease.Token, answers []site.Answer, kept map[string]site.Kept, baselines []site.Baseline, checkpoint uint64) (all []site.Compared) {
	digest := m.Digest(profile)
	for _, a := range answers {
		before, from := site.Before(a.Question, kept[a.ID()], uint64(token)-1, baselines, checkpoint)
		c := site.Compare(a, before, digest)
		c.From = from
		all = append(all, c)
	}
	return all
}

// Baseline is an answer as it is compared with later ones.
func (m Memory) Baseline(profile string, a site.Answer, now time.Time) site.Kept {
	return site.Kept{Means: a.Means(), Digest: m.Digest(profile)(a.ID(), a.Values), Whole: a.Whole, Text: a.Text, At: now.UTC()}
}

// Probes are the questions that are asked when a profile is granted: the probes of the sites in these
// domains or, where there are none, of those that have told something of its account before.
func (m Memory) Probes(profile string, domains []string, book *site.Book) []site.Question {
	kept, _ := m.Load(profile) // what cannot be believed says nothing
	return book.Probes(domains, func(q site.Question) bool {
		_, told := kept[q.ID()]
		return told && len(domains) == 0
	})
}

// Digest makes the digests of what was picked out of answers about a profile's account.
func (m Memory) Digest(profile string) func(id, values string) string {
	return func(id, values string) string { return m.key.Chain(signed.Answers, profile).Next(id + "\x00" + values) }
}
