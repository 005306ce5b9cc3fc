package natskv

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

// surveyed returns the findings about a server of the configuration, on which a store was
// opened.
func surveyed(t *testing.T, config string, change func(*server.Options)) []Finding {
	t.Helper()
	o := &server.Options{ServerName: "n1", Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true}
	if err := o.ProcessConfigString(config); err != nil {
		t.Fatal(err)
	}
	change(o)
	srv, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !srv.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server did not start")
	}
	nc := dialPlain(t, strings.Replace(srv.ClientURL(), "nats://", "nats://l:l@", 1))
	open(t, nc)
	return Survey(patient(t), nc)
}

const askable = `
accounts {
  L { jetstream: enabled, users: [{user: l, password: l}], imports: [{service: {account: SYS, subject: "$SYS.REQ.SERVER.PING.JSZ"}}] }
  SYS { exports: [{service: "$SYS.REQ.SERVER.PING.JSZ", response: stream}] }
}
system_account: SYS`

// A server that could lose leases is found out; where it cannot be asked, that is said, with
// what to look at.
func TestSurvey(t *testing.T) {
	for name, tt := range map[string]struct {
		config string
		change func(*server.Options)
		check  string
		grade  Grade
		text   string
	}{
		"synced": {askable, func(o *server.Options) { o.SyncAlways = true }, "sync", Fine, "every write is synced by n1"},
		"as it comes": {askable, func(*server.Options) {}, "sync", Unsafe,
			`server n1 syncs every 2m0s, want every write: a power cut loses acknowledged leases: set "sync_interval: always"`},
		"not to be asked": {`authorization { user: l, password: l }`, func(*server.Options) {}, "sync", Unasked, `make sure that each has "sync_interval: always"`},
		"version":         {askable, func(*server.Options) {}, "version", Fine, "server n1 is 2."},
		"copies":          {askable, func(*server.Options) {}, "replicas", Fine, "copies of stream KV_leasehold_leases: 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := surveyed(t, tt.config, tt.change)
			if !slices.ContainsFunc(found, func(f Finding) bool {
				return f.Check == tt.check && f.Grade == tt.grade && strings.Contains(f.Text, tt.text)
			}) {
				t.Errorf("found %+v, want %s %s: %s", found, tt.check, tt.grade, tt.text)
			}
		})
	}
}

// TestSurveyWaitsForABusyServer: one that answers late has still been asked.
func TestSurveyWaitsForABusyServer(t *testing.T) {
	t.Parallel()
	nc := inProcess(t, start(t, t.TempDir()))
	busy, err := nc.Subscribe(settingsSubject, func(m *nats.Msg) {
		time.Sleep(3 * furtherTime / 2)
		_ = m.Respond([]byte(`{"server":{"name":"n1","ver":"2.14.0"},"data":{"config":{"sync_always":true}}}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Unsubscribe() }()
	servers, err := askSettings(t.Context(), nc)
	if err != nil || len(servers) != 1 || servers[0].Server.Name != "n1" || !servers[0].Data.Config.SyncAlways {
		t.Errorf("%+v, %v", servers, err)
	}
}

func TestSurveyOfACluster(t *testing.T) {
	nc := dialPlain(t, startCluster(t)[0])
	openWith(t, nc, Options{Replicas: 1, LauncherID: "test", Log: zerolog.Nop()})
	want := "stream KV_leasehold_leases has 1 copies in a cluster, want 3"
	if found := Survey(patient(t), nc); !slices.ContainsFunc(found, func(f Finding) bool { return f.Grade == Unsafe && strings.Contains(f.Text, want) }) {
		t.Errorf("found %+v, want %s", found, want)
	}
}

// Every limit of server and account that stands against leases is refused by name; the others are
// said.
func TestJudgingLimits(t *testing.T) {
	with := func(change func(*jetstream.AccountInfo)) *jetstream.AccountInfo {
		a := &jetstream.AccountInfo{}
		a.Limits = jetstream.AccountLimits{MaxStore: -1, MaxStreams: -1, MaxConsumers: -1}
		change(a)
		return a
	}
	for name, tt := range map[string]struct {
		payload int64
		account *jetstream.AccountInfo
		grade   Grade
		want    string
	}{
		"none":              {1 << 20, with(func(*jetstream.AccountInfo) {}), Fine, "limits: messages of 1048576 bytes"},
		"small messages":    {32 << 10, with(func(*jetstream.AccountInfo) {}), Unsafe, "want 69632 or more"},
		"storage left":      {1 << 20, with(func(a *jetstream.AccountInfo) { a.Store, a.Limits.MaxStore = 5, 10 }), Fine, "bytes of file storage 5 of 10"},
		"storage used":      {1 << 20, with(func(a *jetstream.AccountInfo) { a.Store, a.Limits.MaxStore = 10, 10 }), Unsafe, "has used its bytes of file storage: 10 of 10"},
		"streams used":      {1 << 20, with(func(a *jetstream.AccountInfo) { a.Streams, a.Limits.MaxStreams = 3, 3 }), Unsafe, "has used its streams: 3 of 3"},
		"consumers used":    {1 << 20, with(func(a *jetstream.AccountInfo) { a.Consumers, a.Limits.MaxConsumers = 9, 9 }), Unsafe, "has used its consumers: 9 of 9"},
		"max_bytes, wanted": {1 << 20, with(func(a *jetstream.AccountInfo) { a.Limits.MaxBytesRequired = true }), Unsafe, "wants max_bytes for each stream"},
		"a domain":          {1 << 20, with(func(a *jetstream.AccountInfo) { a.Domain = "leaf" }), Fine, "JetStream domain leaf"},
	} {
		if found := limits(tt.payload, tt.account, nil); len(found) != 1 || found[0].Grade != tt.grade || !strings.Contains(found[0].Text, tt.want) {
			t.Errorf("%s: %+v, want %s: %s", name, found, tt.grade, tt.want)
		}
	}
	if found := limits(1<<20, nil, errors.New("no rights")); len(found) != 1 || found[0].Grade != Unasked {
		t.Errorf("an account that does not tell: %+v", found)
	}
}

func TestJudgingCopies(t *testing.T) {
	stream := func(replicas int, storage jetstream.StorageType, peers ...*jetstream.PeerInfo) *jetstream.StreamInfo {
		info := &jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: "S", Replicas: replicas, Storage: storage}}
		if len(peers) > 0 {
			info.Cluster = &jetstream.ClusterInfo{Replicas: peers}
		}
		return info
	}
	for name, tt := range map[string]struct {
		info      *jetstream.StreamInfo
		clustered bool
		want      []string
	}{
		"one server":      {stream(1, jetstream.FileStorage), false, []string{"ok copies of stream S: 1"}},
		"three":           {stream(3, jetstream.FileStorage, &jetstream.PeerInfo{Name: "b"}), true, []string{"ok copies of stream S: 3"}},
		"too few":         {stream(1, jetstream.FileStorage), true, []string{"unsafe stream S has 1 copies"}},
		"in memory":       {stream(1, jetstream.MemoryStorage), false, []string{"unsafe stream S is in memory", "ok copies"}},
		"a server is off": {stream(3, jetstream.FileStorage, &jetstream.PeerInfo{Name: "b", Offline: true}), true, []string{"ok copies", "unsafe stream S: its copy on server b is offline"}},
	} {
		found := copies(tt.info, tt.clustered)
		if !slices.EqualFunc(found, tt.want, func(f Finding, want string) bool {
			return strings.HasPrefix(fmt.Sprintf("%s %s", f.Grade, f.Text), want)
		}) {
			t.Errorf("%s: %+v, want %q", name, found, tt.want)
		}
	}
	old := []serverSettings{{}}
	old[0].Server.Name, old[0].Server.Version = "n1", "2.12.4"
	if found := versions(&nats.Conn{}, old); len(found) != 1 || found[0].Grade != Unsafe || !strings.Contains(found[0].Text, "want 2.14 or newer") {
		t.Errorf("an old server: %+v", found)
	}
	if found := syncs(nil, errors.New("no answer")); len(found) != 1 || found[0].Grade != Unasked {
		t.Errorf("no answer: %+v", found)
	}
}
