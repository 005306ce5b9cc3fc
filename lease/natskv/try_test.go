package natskv

import (
	"context"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/evidence/natsstore"
)

// TestWhatAUserMayNotDoIsFound: each permission that is missing is named.
func TestWhatAUserMayNotDoIsFound(t *testing.T) {
	t.Parallel()
	all := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"nothing"}}}
	users := []*server.User{
		{Username: "all", Password: "x", Permissions: all},
		{Username: "silent", Password: "x", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{callSubject + ">"}}}},
		{Username: "reader", Password: "x", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$KV.>"}}}},
		{Username: "writer", Password: "x", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.MSG.GET.>"}}}},
	}
	srv := serve(t, &server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true, Users: users})
	connect := func(user string) *nats.Conn {
		return dialPlain(t, strings.Replace(srv.ClientURL(), "nats://", "nats://"+user+":x@", 1))
	}
	nc := connect("all")
	grades := func(user string) map[string]Grade {
		g := map[string]Grade{}
		for _, f := range Try(t.Context(), connect(user)) {
			if g[f.Check] != Unsafe {
				g[f.Check] = f.Grade
			}
			if f.Grade == Unsafe && !strings.Contains(f.Text, "its user needs") {
				t.Errorf("%s: %s, want what to do", user, f.Text)
			}
		}
		return g
	}
	if g := grades("all"); g["message"] != Fine || g["write"] != Unasked || g["read"] != "" {
		t.Errorf("where nothing is yet: %v", g)
	}
	open(t, nc)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for user, bad := range map[string]string{"all": "", "silent": "message", "reader": "write", "writer": "read"} {
		for check, grade := range grades(user) {
			if (grade == Unsafe) != (check == bad) {
				t.Errorf("%s: %s is %s", user, check, grade)
			}
		}
	}
	if made, err := natsstore.Try(t.Context(), js); made || err != nil {
		t.Errorf("evidence where nothing is yet: %v %v", made, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, f := range Try(gone, nc) {
		if f.Grade == Fine {
			t.Errorf("with a context that is over: %+v", f)
		}
	}
}
