package acts

import "testing"

func TestWhoKeepsAPageOfflineIsKnown(t *testing.T) {
	targets := map[string]string{"S": "T", "S2": "T2"}
	m := on(targets)
	send := func(session, method, params string) {
		m.Sent(1, Command{Method: []byte(method), Params: []byte(params), Session: []byte(session)})
	}
	for i, tt := range []struct {
		session, method, params string
		offline, other          bool
	}{
		{"S", "Network.enable", `{}`, false, false},
		{"S", "Network.emulateNetworkConditions", `{"offline":false,"latency":20}`, false, false},
		{"S", "Network.emulateNetworkConditions", `{"offline":true,"latency":0}`, true, false},
		{"S2", "Network.emulateNetworkConditionsByRule", `{"matchedNetworkConditions":[{"urlPattern":"","latency":0},{"urlPattern":"","offline":true}]}`, true, true},
		{"S", "Network.emulateNetworkConditions", `{"offline":"no"}`, true, true},
		{"S", "Network.emulateNetworkConditions", `{not JSON`, true, true},
		{"S", "Network.emulateNetworkConditions", `{"OFFLINE":true,"Offline":true,"offline":false}`, false, true}, // names have a case
		{"S", "Network.emulateNetworkConditions", `{"offline":true}`, true, true},
		{"S", "Network.emulateNetworkConditions", `{"offline":false}`, false, true},
	} {
		send(tt.session, tt.method, tt.params)
		if m.Offline("T") != tt.offline || m.Offline("T2") != tt.other {
			t.Errorf("%d: after %s %s on %s: T %v, T2 %v; want %v, %v", i, tt.method, tt.params, tt.session, m.Offline("T"), m.Offline("T2"), tt.offline, tt.other)
		}
	}
	if delete(targets, "S2"); m.Offline("T2") {
		t.Error("the session is gone, and what it set with it")
	}
}
