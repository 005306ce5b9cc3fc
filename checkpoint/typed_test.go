package checkpoint

import "testing"

func TestWhichFieldsAreSecret(t *testing.T) {
	for field := range fieldWords {
		want := field == FieldCard || field == FieldBank || field == FieldPassword || field == FieldCode
		if field.Secret() != want {
			t.Errorf("%s is secret: %v", field, !want)
		}
	}
}

// TestTypedSinceTheCheckpoint: a safe checkpoint vouches for what came before it. A journal
// without room leaves out what was typed into before anything that decides.
func TestTypedSinceTheCheckpoint(t *testing.T) {
	typed := func(f Field) Entry { return Entry{Kind: KindTyped, Name: string(f), URL: "http://a/"} }
	s := Summarize([]Entry{typed(FieldText), {Kind: KindCheckpoint, Name: "c", Safe: true}, typed(FieldPassword), {Kind: KindCheckpoint, Name: "d"}, typed(FieldCard)})
	if len(s.Typed) != 3 || len(s.TypedSince) != 2 || s.TypedSince[0].Name != "password" {
		t.Errorf("%+v", s)
	}
	var full []Entry
	for i := range 40 {
		e := typed(FieldText)
		e.Seq, e.URL = uint64(2*i+1), "http://a/"+string(rune('A'+i))
		full = append(full, e, Entry{Seq: e.Seq + 1, Kind: KindRequest, URL: e.URL})
	}
	s = Summarize(Compact(full, Limits{Entries: 60, Bytes: 1 << 20}))
	if len(s.Unsafe) < 25 || len(s.Typed) > 5 || len(s.LeftOut) > 0 && s.LeftOut[0].Name == string(KindTyped) {
		t.Errorf("%d requests and %d typed into are left, left out %+v", len(s.Unsafe), len(s.Typed), s.LeftOut)
	}
}
