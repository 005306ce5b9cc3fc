package cdpproxy

import "testing"

// TestPicturesThatAreNeverDrawn: they stay owed, and do not fill the memory.
func TestPicturesThatAreNeverDrawn(t *testing.T) {
	var p owedPictures
	for id := range int64(2*maxNoted + 1) {
		p.asked(inFlight{"S", id})
	}
	if n := int(p.count.Load()); n == 0 || n > maxNoted || n != len(p.owed) {
		t.Errorf("%d are owed, %d are kept", n, len(p.owed))
	}
}
