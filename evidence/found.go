package evidence

// Found is one fact that the open pages showed when a bundle was made.
type Found struct {
	Name   string `json:"name"`
	Answer string `json:"answer"` // yes, no or unknown
	// How says in words for a person where it was found, without anything that was typed. It is
	// empty in an encrypted bundle, since it names pages.
	How string `json:"how,omitempty"`
	// Picture is the name of the part that shows it; empty if there is none.
	Picture string `json:"picture,omitempty"`
}

// SetFound names in the manifest what the open pages showed, so that the inspection can read it
// even if the parts are encrypted. It does nothing to a bundle that is sealed.
func (b *Bundle) SetFound(found []Found) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sealed == "" {
		b.m.Found = found
	}
}
