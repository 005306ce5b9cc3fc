package evidence

import (
	"context"
	"errors"
	"time"
)

// Waiting is the part of an archive that is not in the store yet.
type Waiting struct {
	Bundles int
	Bytes   int64 // of the manifests and the parts, as they are stored
	// Oldest is when the oldest bundle was begun; zero if none waits.
	Oldest time.Time
}

// weight is what a sealed bundle of the spool adds to Waiting.
type weight struct {
	bytes int64
	at    time.Time
}

// Waiting counts the bundles that wait in the spool. It lists the spool's directory, and reads
// each manifest once, because a sealed bundle does not change. A bundle whose manifest cannot
// be read counts with no size and no age.
func (a *Archive) Waiting() (Waiting, error) {
	ids, err := a.spool.Sealed()
	if err != nil {
		return Waiting{}, err
	}
	a.mu.Lock()
	known := a.weights
	a.mu.Unlock()
	weights, w := make(map[string]weight, len(ids)), Waiting{}
	for _, evidenceID := range ids {
		one, ok := known[evidenceID]
		if !ok {
			raw, err := a.spool.Manifest(context.Background(), evidenceID)
			if errors.Is(err, ErrNotFound) {
				continue // it reached the store meanwhile
			}
			if err == nil {
				one = weigh(evidenceID, raw)
			}
		}
		weights[evidenceID] = one
		w.Bundles++
		w.Bytes += one.bytes
		if !one.at.IsZero() && (w.Oldest.IsZero() || one.at.Before(w.Oldest)) {
			w.Oldest = one.at
		}
	}
	a.mu.Lock()
	a.weights = weights
	a.mu.Unlock()
	return w, nil
}

func weigh(evidenceID string, raw []byte) weight {
	m, err := Decode(evidenceID, raw)
	if err != nil {
		return weight{bytes: int64(len(raw))}
	}
	one := weight{int64(len(raw)), m.At}
	for _, p := range m.Parts {
		one.bytes += p.Bytes
	}
	return one
}
