package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"leasehold/internal/natsd"
	"leasehold/internal/test/freeport"
	"leasehold/launcher/snapshots/natsobjects"
	"leasehold/lease/natskv"
)

func TestWhichNATS(t *testing.T) {
	for name, one := range map[string]struct {
		url, listen string
		env         []string
		own         bool
		want        string
	}{
		"none":                {listen: "127.0.0.1:4333", want: "inside this sidecar, since neither"},
		"by flag":             {url: "nats://h:4222", listen: "127.0.0.1:4333", want: "the NATS of --nats-url"},
		"by variable":         {url: "nats://h:4222", listen: "127.0.0.1:4333", env: []string{natsURLVariable, "nats://h:4222"}, want: "the NATS of LEASEHOLD_NATS_URL"},
		"flag over variable":  {url: "nats://h:4222", listen: "127.0.0.1:4333", env: []string{natsURLVariable, "nats://i:4222"}, want: "the NATS of --nats-url"},
		"its own":             {url: "nats://127.0.0.1:4333", listen: "127.0.0.1:4333", own: true, want: "--nats-url"},
		"its own, by name":    {url: "nats://localhost:4333", listen: "127.0.0.1:4333", own: true, want: "--nats-url"},
		"its own, on all":     {url: "nats://u:p@127.0.0.1:4333", listen: "0.0.0.0:4333", own: true, want: "--nats-url"},
		"another port":        {url: "nats://127.0.0.1:4222", listen: "127.0.0.1:4333", want: "--nats-url"},
		"its own in a list":   {url: "nats://h:4222, nats://127.0.0.1:4333", listen: "127.0.0.1:4333", own: true, want: "--nats-url"},
		"another one's there": {url: "nats://127.0.0.1:4333", listen: "127.0.0.1:4444", want: "--nats-url"},
	} {
		c := soundConfig()
		c.NATSURL, c.NATSListen = one.url, one.listen
		if got := c.natsIsOwn(); got != one.own {
			t.Errorf("%s: its own %v, want %v", name, got, one.own)
		}
		if got := c.natsChoice(environment(one.env...)); !strings.Contains(got, one.want) {
			t.Errorf("%s: %q, want %q", name, got, one.want)
		}
	}
}

// Events are of all profiles: who may read them all may subscribe.
func TestWhoReadsEveryProfileMaySubscribe(t *testing.T) {
	c := soundConfig()
	options := func() (natsd.Options, error) {
		t.Helper()
		var err error
		if c.Users, c.TrustedProxies, err = c.peers(); err != nil {
			t.Fatal(err)
		}
		gate, err := c.gate(zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		return c.embeddedNATS(gate, zerolog.Nop())
	}
	if o, err := options(); err != nil || o.Authenticate != nil || o.TLS != nil || o.Admit(12345) {
		t.Errorf("without a token: %+v, %v", o, err)
	}
	listens := c
	listens.NATSListen, listens.TLSCert, listens.TLSKey = "0.0.0.0:4333", "cert", "key"
	for _, one := range []struct {
		file, tokens string
		fine         bool
	}{{"token", "", true}, {"", "tokens.yaml", true}, {"", "", false}} {
		listens.TokenFile, listens.Tokens = one.file, one.tokens
		if err := listens.validateNATS(); (err == nil) != one.fine {
			t.Errorf("on all addresses, with --token-file %q and --tokens %q: %v", one.file, one.tokens, err)
		}
	}
	c.Token, c.TokenFile = "the-token-of-this-test", "token"
	c.AllowUID = []string{"1001=viewer:*", "1002=viewer:shop_*", "1003=worker:*"}
	o, err := options()
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]bool{c.Token: true, c.Token + "x": false, "": false, "x": false} {
		if _, ok := o.Authenticate(token); ok != want {
			t.Errorf("token %q: %v, want %v", token, ok, want)
		}
	}
	for uid, want := range map[uint32]bool{1001: true, 1002: false, 1003: false, 1004: false} {
		if ok := o.Admit(uid); ok != want {
			t.Errorf("user %d: %v, want %v", uid, ok, want)
		}
	}
	c.NATSListen = "0.0.0.0:4333"
	if _, err := options(); err == nil || !strings.Contains(err.Error(), "--tls-cert") {
		t.Errorf("on all addresses, without a certificate: %v", err)
	}
}

// doctor says of a NATS server of the user's own what a sidecar's start would.
func TestDoctorLooksAtANATSServer(t *testing.T) {
	const unasked = `make sure that each has "sync_interval: always"`
	for name, one := range map[string]struct {
		sync bool
		deny string // where launchers may not publish; empty: everywhere they may
		ask  string // what of the system account launchers may ask
		keep string // --profile-store
		ok   bool
		want string
	}{
		"synced":          {sync: true, ask: "$SYS.REQ.SERVER.PING.JSZ", ok: true, want: "JetStream enabled; it is the NATS of --nats-url"},
		"not synced":      {ask: "$SYS.REQ.SERVER.PING.JSZ", want: "syncs every 2m0s, want every write"},
		"read only":       {sync: true, deny: "$KV.>", ask: "$SYS.REQ.SERVER.PING.JSZ", want: "bucket leasehold_leases does not take writes"},
		"not to be asked": {ask: "$SYS.REQ.SERVER.PING.X", ok: true, want: unasked},
		"snapshots":       {sync: true, ask: "$SYS.REQ.SERVER.PING.JSZ", keep: ownNATS, ok: true, want: "stream leasehold_profiles is made at the first start"},
		"no snapshots":    {sync: true, deny: "leasehold_profiles.>", ask: "$SYS.REQ.SERVER.PING.JSZ", keep: ownNATS, want: "stream leasehold_profiles takes no snapshots"},
		"none removed":    {sync: true, deny: "$JS.API.STREAM.PURGE.*", ask: "$SYS.REQ.SERVER.PING.JSZ", keep: ownNATS, want: "what was written to stream leasehold_profiles cannot be removed"},
		"no store":        {sync: true, deny: "$JS.API.STREAM.CREATE.leasehold_profiles", ask: "$SYS.REQ.SERVER.PING.JSZ", keep: ownNATS, want: "stream leasehold_profiles, in which snapshots are kept, cannot be made"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), SyncAlways: one.sync, NoSigs: true, NoLog: true}
			if err := o.ProcessConfigString(strings.ReplaceAll(strings.ReplaceAll(`accounts {
				L { jetstream: enabled, users: [{user: l, password: l, permissions: {publish: {deny: ["DENY"]}}}, {user: first, password: l}], imports: [{service: {account: SYS, subject: "ASK"}}] }
				SYS { exports: [{service: "ASK", response: stream}] }
			}
			system_account: SYS`, "ASK", one.ask), "DENY", cmp.Or(one.deny, "nothing"))); err != nil {
				t.Fatal(err)
			}
			s, err := server.NewServer(o)
			if err != nil {
				t.Fatal(err)
			}
			s.Start()
			defer func() { s.Shutdown(); s.WaitForShutdown() }()
			if !s.ReadyForConnections(30 * time.Second) {
				t.Fatal("the NATS server does not start")
			}
			if one.deny != "" { // somebody else made the buckets
				nc, err := natsd.Dial(t.Context(), natsd.Target{URL: strings.Replace(s.ClientURL(), "nats://", "nats://first:l@", 1)}, zerolog.Nop())
				if err != nil {
					t.Fatal(err)
				}
				store, err := natskv.Open(t.Context(), nc, natskv.Options{LauncherID: "first", Log: zerolog.Nop()})
				if err != nil {
					t.Fatal(err)
				}
				store.Close()
				if one.keep != "" && !strings.Contains(one.deny, ".CREATE.") {
					js, err := jetstream.New(nc)
					if err != nil {
						t.Fatal(err)
					}
					if err := natsobjects.New(js, natsobjects.Config{}).Put(t.Context(), "a/b", []byte("x"), ""); err != nil {
						t.Fatal(err)
					}
				}
				nc.Close()
			}
			c := soundConfig()
			c.ProfileStore = one.keep
			c.NATSURL = strings.Replace(s.ClientURL(), "nats://", "nats://l:l@", 1)
			var detail, text string
			for end := time.Now().Add(time.Minute); ; { // a busy server's answer may come too late to be heard
				detail, err = c.checkNATSServer(context.Background(), false)
				text = detail
				if err != nil {
					text = err.Error()
				}
				if one.want == unasked || !strings.Contains(detail, unasked) || time.Now().After(end) {
					break
				}
			}
			if (err == nil) != one.ok || !strings.Contains(text, one.want) || strings.Contains(text, "l:l@") {
				t.Errorf("%q, %v; want %q", detail, err, one.want)
			}
		})
	}
}

// doctor names the servers that are not one store. One that cannot be reached is only named.
func TestDoctorComparesTheServers(t *testing.T) {
	var urls []string
	for _, name := range []string{"first", "second"} {
		s, err := server.NewServer(&server.Options{ServerName: name, Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), SyncAlways: true, NoSigs: true, NoLog: true})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		defer func() { s.Shutdown(); s.WaitForShutdown() }()
		if !s.ReadyForConnections(time.Minute) {
			t.Fatal("the NATS server does not start")
		}
		urls = append(urls, s.ClientURL())
	}
	c := soundConfig()
	c.NATSURL = strings.Join(urls, ",")
	if _, err := c.checkNATSServer(t.Context(), false); err == nil || !strings.Contains(err.Error(), urls[0]+" (server first") ||
		!strings.Contains(err.Error(), urls[1]+" (server second") || !strings.Contains(err.Error(), "are not one store") {
		t.Errorf("two servers that are no cluster: %v", err)
	}
	c.NATSURL = urls[0] + ",nats://127.0.0.1:1"
	if detail, err := c.checkNATSServer(t.Context(), false); err != nil || !strings.Contains(detail, "nats://127.0.0.1:1 was not compared with the others: ") {
		t.Errorf("with one that cannot be reached: %q, %v", detail, err)
	}
}

// lines tells of each line that is written.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// A sidecar that starts before its NATS does, as on a host that boots, waits for it.
func TestANATSThatStartsLaterIsWaitedFor(t *testing.T) {
	port := freeport.Take(t, 1)[0]
	c := soundConfig()
	c.NATSURL = fmt.Sprint("nats://127.0.0.1:", port)
	said := make(lines, 100)
	s := newService(c, zerolog.New(said), func() uint64 { return 0 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	connected := make(chan error, 1)
	go func() { connected <- s.connectNATS(ctx) }()
	select {
	case err := <-connected:
		t.Fatalf("it does not wait: %v", err)
	case line := <-said:
		if !strings.Contains(line, c.NATSURL) {
			t.Errorf("it does not say what it waits for: %s", line)
		}
	}
	started, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	started.Start()
	defer func() { started.Shutdown(); started.WaitForShutdown() }()
	if err := <-connected; err != nil {
		t.Fatal(err)
	}
	s.nats.Close()
}
