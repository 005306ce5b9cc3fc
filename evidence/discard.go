package evidence

import "fmt"

// Discard removes a bundle that was not sealed and is not needed: what it shows
// went on as if nothing had been. A sealed one is refused; evidence stays. A
// second call does nothing.
func (b *Bundle) Discard() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.sealed != "" || b.spool.isSealed(b.m.EvidenceID):
		return fmt.Errorf("evidence %s: the bundle is sealed, and stays", b.m.EvidenceID)
	case b.gone:
		return nil
	}
	if err := b.spool.remove(b.m.EvidenceID); err != nil {
		return err
	}
	b.gone = true
	return nil
}
