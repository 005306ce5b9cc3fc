package view

import (
	"testing"

	"leasehold/cdpproxy/methods"
)

// TestEveryDeedIsAMethod that a worker may send: one of another name would never be shown.
func TestEveryDeedIsAMethod(t *testing.T) {
	for method := range deeds {
		if m := methods.Find([]byte(method)); m == nil || m.Class == methods.Refused {
			t.Errorf("%s is no method that passes", method)
		}
	}
}
