package export

import (
	"encoding/json"

	"leasehold/checkpoint"
)

// HAROf is the HAR of a list of requests, or of why there is none, and a journal.
func HAROf(network []byte, missing string, journal []byte) string {
	p := parseNetwork(network)
	if missing != "" {
		p.missing = missing
	}
	b, err := json.Marshal(harOf(p, checkpoint.Parse(journal)))
	if err != nil {
		panic(err)
	}
	return string(b)
}
