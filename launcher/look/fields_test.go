package look

import (
	"encoding/json"
	"testing"

	"leasehold/checkpoint"
	"leasehold/internal/domsnapshot"
)

func TestNumbersAreKnownByTheirCheckDigits(t *testing.T) {
	for text, want := range map[string]bool{
		"4111111111111111": true, "4111 1111 1111 1111": true, "4111-1111-1111-1111": true, "378282246310005": true, "4222222222222": true,
		"4111111111111112": false, "0000000000000000": false, "411111": false, "41111111111111111111": false, "4111 1111 1111 111x": false, "": false, "+44 20 7946 0958": false,
	} {
		if isCardNumber(text) != want {
			t.Errorf("%q is a card's number: %v", text, !want)
		}
	}
	for text, want := range map[string]bool{
		"DE89370400440532013000": true, "de89 3704 0044 0532 0130 00": true, "GB82 WEST 1234 5698 7654 32": true, "NO9386011117947": true,
		"DE89370400440532013001": false, "8937DE0400440532013000": false, "DE8937040044": false, "DE89-3704-0044-0532-0130-00": false, "": false, "Straße der Pariser Kommune": false,
	} {
		if isIBAN(text) != want {
			t.Errorf("%q is a bank account: %v", text, !want)
		}
	}
}

// TestWhatAFieldIsFor: the rule is one for what stands in a field and for what is typed into it.
func TestWhatAFieldIsFor(t *testing.T) {
	for _, tt := range []struct {
		field string
		want  checkpoint.Field
	}{
		{`{"tag":"input","attributes":{"type":"text"}}`, checkpoint.FieldText},
		{`{"tag":"input","attributes":{"type":"password"}}`, checkpoint.FieldPassword},
		{`{"tag":"input","attributes":{"type":"text","autocomplete":"section-a current-password"}}`, checkpoint.FieldPassword},
		{`{"tag":"input","attributes":{"type":"password","autocomplete":"one-time-code"}}`, checkpoint.FieldCode},
		{`{"tag":"input","attributes":{"type":"tel","autocomplete":"billing cc-csc"}}`, checkpoint.FieldCard},
		{`{"tag":"input","attributes":{"type":"text"},"value":"4111 1111 1111 1111"}`, checkpoint.FieldCard},
		{`{"tag":"textarea","attributes":{},"value":"DE89370400440532013000"}`, checkpoint.FieldBank},
		{`{"tag":"input","attributes":{"type":"text"},"value":"4111 1111 1111 1112"}`, checkpoint.FieldText},
		{`{"tag":"input","attributes":{"type":"search"}}`, checkpoint.FieldSearch},
		{`{"tag":"div","attributes":{"role":"searchbox"}}`, checkpoint.FieldSearch},
		{`{"tag":"input","attributes":{"type":"text","enterkeyhint":"Search"}}`, checkpoint.FieldSearch},
		{`{"tag":"input","attributes":{"type":"text"},"searches":true}`, checkpoint.FieldSearch},
		{`{"tag":"input","attributes":{"type":"password"},"searches":true}`, checkpoint.FieldPassword},
		{`{"tag":"textarea"}`, checkpoint.FieldMessage},
		{`{"tag":"p","attributes":{"role":"textbox"}}`, checkpoint.FieldMessage},
		{`{"tag":"input","attributes":{"type":"email"}}`, checkpoint.FieldMail},
		{`{"tag":"input","attributes":{"type":"text","inputmode":"email"}}`, checkpoint.FieldMail},
		{`{"tag":"input","attributes":{"type":"text","autocomplete":"shipping postal-code"}}`, checkpoint.FieldAddress},
		{`{"tag":"input","attributes":{"type":"tel"}}`, checkpoint.FieldPhone},
		{`{"tag":"input","attributes":{"type":"text","autocomplete":"tel-national"}}`, checkpoint.FieldPhone},
	} {
		var f Field
		if err := json.Unmarshal([]byte(tt.field), &f); err != nil {
			t.Fatal(err)
		}
		if got := f.Kind(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.field, got, tt.want)
		}
	}
}

func TestHowManyDigitsAFieldTakes(t *testing.T) {
	for attrs, want := range map[string]int{
		`{"inputmode":"numeric","maxlength":"6"}`: 6, `{"type":"tel","maxlength":"4"}`: 4, `{"pattern":"\\d{6}"}`: 6, `{"pattern":"^[0-9]{4,8}$"}`: 4,
		`{"pattern":"[0-9]*","maxlength":"6"}`: 6, `{"pattern":"[a-z]{6}"}`: 0, `{"maxlength":"6"}`: 0, `{"type":"number"}`: 0, `{}`: 0,
	} {
		e := element{tag: "input"}
		if err := json.Unmarshal([]byte(attrs), &e.attrs); err != nil {
			t.Fatal(err)
		}
		if got := codeLength(&e); got != want {
			t.Errorf("%s: %d digits, want %d", attrs, got, want)
		}
	}
}

// FuzzScene: whatever Chrome says a page is, it is looked at within its own bounds.
func FuzzScene(f *testing.F) {
	f.Add([]byte(`{"documents":[{"documentURL":0,"nodes":{"parentIndex":[-1,0,1,2,3],"nodeType":[9,1,1,1,3],"nodeName":[1,2,3,4,5],"nodeValue":[-1,-1,-1,-1,6],
		"backendNodeId":[1,2,3,4,5],"attributes":[[],[],[],[7,8],[]],"inputValue":{"index":[3],"value":[6]},"contentDocumentIndex":{"index":[2],"value":[0]}},
		"layout":{"nodeIndex":[1,2,3,4],"styles":[[9,10,11],[],[9],[]],"bounds":[[0,0,800,600],[0,0,80,60],[1,1,50,20],[1,1]],"paintOrders":[0,1]}}],
		"strings":["http://shop.example/","#document","HTML","IFRAME","INPUT","#text","4111111111111111","type","password","visible","1","fixed"]}`))
	f.Add([]byte(`{"documents":[{"nodes":{"parentIndex":[3,2,1,0],"nodeType":[1,1,1,1],"nodeName":[0,0]}},{"nodes":{"parentIndex":[-1],"nodeType":[1],"contentDocumentIndex":{"index":[0],"value":[1]}}}],"strings":["form"]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var s domsnapshot.Snapshot
		if json.Unmarshal(raw, &s) != nil {
			return
		}
		page := graft{snapshot: s, session: "S", inside: map[int64]graft{4: {snapshot: s}}}
		scene := newScene(page, box{0, 0, 800, 600}, 1)
		for i, e := range scene.elements {
			if e.parent >= i || scene.last[i] < i || scene.last[i] >= len(scene.elements) {
				t.Fatalf("element %d of %d is inside of %d, and ends at %d", i, len(scene.elements), e.parent, scene.last[i])
			}
		}
		for _, used := range []bool{false, true} {
			for _, found := range scene.asks(used) {
				if found.how == "" || found.question == "" {
					t.Errorf("%+v", found)
				}
			}
		}
		scene.typed()
	})
}
