package cdpproxy

import "testing"

// TestTheObserverIsHidden in events and in replies: only what clients are attached to is shown
// as attached.
func TestTheObserverIsHidden(t *testing.T) {
	m := &Mux{}
	m.sessions.opened("S", "", &ClientSession{token: 1}, targetInfo{TargetID: "used"})
	const unseen = `{"targetId":"unseen","type":"tab","attached":`
	const free, used, browser = `{"targetId":"free","type":"page","title":"\"attached\":true","attached":`, `{"targetId":"used","type":"page","attached":`, `{"targetId":"b","type":"browser","attached":`
	for _, tt := range []struct {
		name, msg, want string
		isReply         bool
	}{
		{"an event", `{"method":"Target.targetInfoChanged","params":{"targetInfo":` + free + `true}}}`, `{"method":"Target.targetInfoChanged","params":{"targetInfo":` + free + `false}}}`, false},
		{"of a client's target", `{"method":"Target.targetCreated","params":{"targetInfo":` + used + `true}}}`, "", false},
		{"of a tab, to which only clients attach", `{"method":"Target.targetInfoChanged","params":{"targetInfo":` + unseen + `true}}}`, "", false},
		{"another event", `{"method":"Target.attachedToTarget","params":{"targetInfo":` + free + `true}}}`, "", false},
		{"all targets", `{"id":1,"result":{"targetInfos":[` + free + `true},` + browser + `true},` + used + `true},` + free + `false},` + free + `true}]}}`,
			`{"id":1,"result":{"targetInfos":[` + free + `false},` + browser + `true},` + used + `true},` + free + `false},` + free + `false}]}}`, true},
		{"one target", `{"id":2147483647,"result":{"targetInfo":` + free + `true}}}`, `{"id":2147483647,"result":{"targetInfo":` + free + `false}}}`, true},
		{"another reply", `{"id":1,"result":{"x":{"targetId":"free","attached":true}}}`, "", true},
		{"not in Chrome's form", `{"id":1,"result":{"targetInfo":{"targetId":"free","attached": true},"x":{"attached":true}}}`, `{"id":1,"result":{"targetInfo":{"targetId":"free","attached": true},"x":{"attached":false}}}`, true},
		{"cut off", `{"id":1,"result":{"targetInfo":{"targetId":"free","attached":true`, "", true},
	} {
		want := tt.want
		if want == "" {
			want = tt.msg
		}
		if got := string(m.hideObserver([]byte(tt.msg), tt.isReply)); got != want {
			t.Errorf("%s: %s, want %s", tt.name, got, want)
		}
	}
}
