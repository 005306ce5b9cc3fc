package lease

import "testing"

func TestPlaces(t *testing.T) {
	for text, want := range map[string]Place{
		"0": {}, "4711": {Sequence: 4711}, "4711-9fa3c2d1": {4711, 0x9fa3c2d1}, "7-0000002a": {7, 42},
	} {
		if got, err := ParsePlace(text); err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v (%s), %v, want %+v", text, got, got, err, want)
		}
	}
	for _, text := range []string{"", "-", "x", "-1", "+1", "07", "1-", "1-2a", "1-0000002A", "1-00000000", "1-100000000", " 1", "18446744073709551615", PlaceNow.String(), "1-2-3"} {
		if got, err := ParsePlace(text); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
	if a, b := PlaceOf(7, []byte("a")), PlaceOf(7, []byte("b")); a == b || a.Check == 0 {
		t.Errorf("two messages have the places %v and %v", a, b)
	}
}

func FuzzParsePlace(f *testing.F) {
	for _, seed := range []string{"0", "4711-9fa3c2d1", "1-", "-", "99999999999999999999"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := ParsePlace(text); err == nil && p.String() != text {
			t.Errorf("%q is taken for %s", text, p)
		}
	})
}

func TestKindsOfEvents(t *testing.T) {
	for event, kind := range map[string]string{
		string(Quarantined): "recovery", EventGranted: "lease", EventReleased: "lease", EventExpired: "lease", EventConflict: "conflict", EventLateWrite: "late_write",
	} {
		if got := (Event{Event: event, ProfileID: "a.b"}).Kind(); got != kind || !IsEventKind(got) {
			t.Errorf("%s is of kind %s, want %s", event, got, kind)
		}
	}
}
