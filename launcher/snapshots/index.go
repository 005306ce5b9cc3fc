package snapshots

import (
	"encoding/json"
	"os"

	"leasehold/internal/durable"
)

// index is what this host knows of a profile's files since its last snapshot: by what a
// file is known again, and its chunks. It saves reading what did not change. It is
// encrypted as the snapshots are, so nobody else can have written it.
type index struct {
	// Snapshot is the one that has all of the chunks.
	Snapshot string `json:"snapshot_id"`
	// Files are by their path as a manifest has it.
	Files map[string]indexed `json:"files"`
}

type indexed struct {
	stat
	Chunks []Chunk `json:"chunks,omitempty"`
}

// indexName is what an index is encrypted as.
const indexName = "index"

// readIndex returns the index of a profile; nil where there is none that can be read:
// then all files are.
func (s *Store) readIndex(profileID, path string) *index {
	stored, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	raw, err := s.key.of(profileID).unpack(indexName, stored)
	i := &index{}
	if err != nil || json.Unmarshal(raw, i) != nil {
		return nil
	}
	return i
}

func (s *Store) writeIndex(profileID, path string, i index) error {
	raw, err := json.Marshal(i)
	if err != nil {
		return err
	}
	return durable.Replace(path, s.key.of(profileID).pack(indexName, raw))
}

// file returns the chunks of a file that was not written to since.
func (i *index) file(path string, now stat) ([]Chunk, bool) {
	if i == nil {
		return nil, false
	}
	known, ok := i.Files[path]
	return known.Chunks, ok && known.stat == now
}
