package snapshots

import (
	"encoding/json"
	"os"

	"leasehold/internal/durable"
)

// index is what this host knows about a profile's files since its last snapshot: how to
// recognize an unchanged file, and its chunks. It saves reading what did not change. It is
// encrypted like the snapshots, so nobody else can have written it.
type index struct {
	// Snapshot is the snapshot that has all of the chunks.
	Snapshot string `json:"snapshot_id"`
	// Files are indexed by their path as it is written in a manifest.
	Files map[string]indexed `json:"files"`
}

type indexed struct {
	stat
	Chunks []Chunk `json:"chunks,omitempty"`
}

// indexName is the name under which an index is encrypted.
const indexName = "index"

// readIndex returns the index of a profile; nil if there is none that can be read: then all
// files are read.
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
