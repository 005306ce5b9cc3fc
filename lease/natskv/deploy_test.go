package natskv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/evidence/natsstore"
	"leasehold/internal/natsd"
	"leasehold/internal/test/freeport"
	"leasehold/internal/test/objectstest"
	"leasehold/internal/test/storetest"
	"leasehold/launcher/snapshots"
	"leasehold/launcher/snapshots/natsobjects"
	"leasehold/lease"
)

// deployed are three servers with the configuration that is shipped.
type deployed struct {
	urls []string
	dir  string // has NAME.nk for each user, and ca.pem
}

// target is how a user of the configuration connects.
func (d deployed) target(user string) natsd.Target {
	return natsd.Target{URL: strings.Join(d.urls, ","), Creds: filepath.Join(d.dir, user+".nk"), CA: filepath.Join(d.dir, "ca.pem")}
}

// connect connects as the user. refused has what the server refuses after that.
func (d deployed) connect(t *testing.T, user string) (nc *nats.Conn, refused <-chan error) {
	t.Helper()
	errs := make(chan error, 100)
	nc, err := natsd.Dial(t.Context(), d.target(user), zerolog.Nop(), nats.Timeout(time.Minute), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { errs <- err }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc, errs
}

// deploy runs deploy/nats-server.conf as docs/nats.md says.
func deploy(t *testing.T) deployed {
	t.Helper()
	d := deployed{dir: t.TempDir()}
	writeCertificates(t, d.dir)
	for _, user := range []string{"launcher", "subscriber", "monitor"} {
		pair, err := nkeys.CreateUser()
		if err != nil {
			t.Fatal(err)
		}
		seed, err1 := pair.Seed()
		public, err2 := pair.PublicKey()
		if err := errors.Join(err1, err2, os.WriteFile(filepath.Join(d.dir, user+".nk"), seed, 0o600)); err != nil {
			t.Fatal(err)
		}
		t.Setenv("NATS_"+strings.ToUpper(user), public)
	}
	for name, file := range map[string]string{"NATS_CERT": "cert.pem", "NATS_KEY": "key.pem", "NATS_CA": "ca.pem"} {
		t.Setenv(name, filepath.Join(d.dir, file))
	}
	var routes []string
	for i, port := range freeport.Take(t, 3) {
		routes = append(routes, fmt.Sprintf("127.0.0.1:%d", port))
		t.Setenv(fmt.Sprintf("NATS_ROUTE_%d", i+1), "tls://"+routes[i])
	}
	var servers []*server.Server
	for i := range 3 {
		t.Setenv("NATS_NAME", fmt.Sprintf("nats-%d", i+1))
		t.Setenv("NATS_LISTEN", "127.0.0.1:-1")
		t.Setenv("NATS_CLUSTER_LISTEN", routes[i])
		t.Setenv("NATS_STORE_DIR", t.TempDir())
		o, err := server.ProcessConfigFile(filepath.Join("..", "..", "deploy", "nats-server.conf"))
		if err != nil {
			t.Fatal(err)
		}
		o.NoSigs, o.NoLog = true, true
		servers = append(servers, serve(t, o))
	}
	awaitCluster(t, servers)
	for _, s := range servers {
		d.urls = append(d.urls, strings.Replace(s.ClientURL(), "nats://", "tls://", 1))
	}
	return d
}

// writeCertificates makes ca.pem, and cert.pem and key.pem for the servers.
func writeCertificates(t *testing.T, dir string) {
	t.Helper()
	write := func(name, kind string, der []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	signer, own := key(), key()
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	caDER, err1 := x509.CreateCertificate(rand.Reader, ca, ca, signer.Public(), signer)
	leafDER, err2 := x509.CreateCertificate(rand.Reader, leaf, ca, own.Public(), signer)
	keyDER, err3 := x509.MarshalECPrivateKey(own)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	write("ca.pem", "CERTIFICATE", caDER)
	write("cert.pem", "CERTIFICATE", leafDER)
	write("key.pem", "EC PRIVATE KEY", keyDER)
}

// The configuration that is shipped is enough for a sidecar and for a subscriber, and safe;
// and everything else is refused by the server.
func TestTheShippedConfiguration(t *testing.T) {
	d := deploy(t)
	launcher, refused := d.connect(t, "launcher")
	s := openWith(t, launcher, Options{Replicas: 3, LauncherID: "test", Log: zerolog.Nop(), tryTime: lateAnswer})

	// Everything that a sidecar does there.
	happens(t, s, "p1")
	if err := presenceOf("boot")(patient(t), s); err != nil {
		t.Error(err)
	}
	if _, err := s.List(patient(t)); err != nil {
		t.Error(err)
	}
	if _, err := s.Presences(patient(t)); err != nil {
		t.Error(err)
	}
	wantHistory(t, s, "p1", "granted/1/1")
	watch := watchOf(t, s, nil)
	watch.await("fresh", "p1/held/1", "complete")
	evidenceWorks(t, launcher)
	snapshotsWork(t, launcher)
	callsWork(t, s)
	triesLeaveNothing(t, launcher)
	queue := watchQueue(t, s) // which makes the bucket
	queue.await(t, "")
	if _, err := s.PutWaiter(patient(t), lease.Waiter{ID: "w", LauncherID: "boot"}); err != nil {
		t.Error(err)
	}
	queue.await(t, "boot/w")
	if err := s.DropWaiter(t.Context(), "boot", "w"); err != nil {
		t.Error(err)
	}
	queue.await(t, "")
	sites := watchSites(t, s)
	sites.await(t, 0, "")
	revision, err := s.PutSite(patient(t), lease.SiteEntry{Name: "shop", Data: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	sites.await(t, 0, fmt.Sprintf("shop={}@%d", revision))
	for _, f := range Survey(t.Context(), launcher) {
		if f.Grade != Fine {
			t.Errorf("survey: %+v", f)
		}
	}
	// And a subscriber.
	nc, denied := d.connect(t, "subscriber")
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	c, err := js.CreateOrUpdateConsumer(t.Context(), Stream, jetstream.ConsumerConfig{Durable: "audit", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	happens(t, s, "p2")
	if got := grants(t, c, 2); !slices.Equal(got, []string{"p1", "p2"}) {
		t.Errorf("a durable consumer: %q", got)
	}
	for name, errs := range map[string]<-chan error{"launcher": refused, "subscriber": denied} {
		select {
		case err := <-errs:
			t.Errorf("%s: %v", name, err)
		default:
		}
	}
	t.Run("tricks", func(t *testing.T) {
		// Any of the three servers is asked for a message. One that lags does not have the last yet.
		whole := func() (got []string) {
			soon(t, func() (err error) {
				got, err = contents(t.Context(), js)
				return err
			})
			return got
		}
		before := whole()
		for _, target := range []string{"leasehold.recovery.p1.available", natsd.FeedSubject, leaseSubject("p1")} {
			for _, trick := range tricks() {
				trick(t, nc, target)
			}
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		happens(t, s, "p3")
		if got := grants(t, c, 1); got[0] != "p3" {
			t.Errorf("the next event is of %q", got)
		}
		if after := whole(); len(after) != len(before)+1 || !slices.Equal(after[:len(before)], before) {
			t.Errorf("before\n%s\nafter\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
		}
		wantHistory(t, s, "p1", "granted/1/1")
	})
	// Last, since what is allowed leaves its mark.
	t.Run("permissions", func(t *testing.T) { checkPermissions(t, d) })
}

// triesLeaveNothing tries all that doctor does.
func triesLeaveNothing(t *testing.T, nc *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	count := func() (n uint64) {
		for _, name := range []string{"KV_" + Bucket, "KV_" + Hosts, Stream, "OBJ_" + natsstore.Bucket, natsobjects.Stream} {
			s, err := js.Stream(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			n += s.CachedInfo().State.Msgs
		}
		return n
	}
	before := count()
	found := Try(t.Context(), nc)
	if len(found) != 5 {
		t.Errorf("found %+v", found)
	}
	for _, f := range found {
		if f.Grade != Fine {
			t.Errorf("tried: %+v", f)
		}
	}
	if made, err := natsstore.Try(t.Context(), js); err != nil || !made {
		t.Errorf("evidence: %v %v", made, err)
	}
	if made, err := natsobjects.Try(t.Context(), js); err != nil || !made {
		t.Errorf("snapshots: %v %v", made, err)
	}
	if after := count(); after != before {
		t.Errorf("%d messages, before %d", after, before)
	}
}

// evidenceWorks stores, reads and removes a bundle.
func evidenceWorks(t *testing.T, nc *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	store := natsstore.New(js, natsstore.Config{Replicas: 3})
	sealed, link := storetest.Seal(t, storetest.Spool(t), "p1", "e1", 1, evidence.Link{})
	if err := store.Put(t.Context(), sealed); err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]error{
		"manifest": second2(store.Manifest(t.Context(), "e1")),
		"part":     second2(store.Part(t.Context(), "e1", sealed.Manifest.Parts[0].Name)),
		"list":     second2(store.List(t.Context(), "p1")),
		"list all": second2(store.List(t.Context(), "")),
		"verify":   second2(evidence.Verify(t.Context(), store, "p1", link)),
		"delete":   store.Delete(t.Context(), sealed.Manifest),
	} {
		if v != nil {
			t.Errorf("evidence: %s: %v", name, v)
		}
	}
}

// snapshotsWork makes, reads and removes snapshots. Before that there is no stream for them, and doctor
// makes none.
func snapshotsWork(t *testing.T, nc *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	made, err := natsobjects.Try(t.Context(), js)
	if _, missing := js.Stream(t.Context(), natsobjects.Stream); err != nil || made || !errors.Is(missing, jetstream.ErrStreamNotFound) {
		t.Errorf("snapshots, before the first one: %v %v, and then %v", made, err, missing)
	}
	store := snapshots.New(natsobjects.New(js, natsobjects.Config{Replicas: 3}), snapshots.NewKey())
	if err := store.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	tree := objectstest.Profile()
	var newest snapshots.Snapshot
	for token := range lease.Token(3) {
		tree["Default/Cookies"] = objectstest.Random(int(token), 100_000)
		if newest, err = objectstest.Seal(t, store, "p1", tree.Write(t), token+1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.Retain(t.Context(), "p1", 3, snapshots.Retention{Keep: 2}, newest.CreatedAt); err != nil {
		t.Error(err)
	}
	if list, err := store.List(t.Context(), "p1"); err != nil || len(list) != 2 {
		t.Errorf("snapshots: %+v, %v", list, err)
	}
	if found, err := store.Verify(t.Context(), "p1", newest.ID); err != nil || !found.Whole() {
		t.Errorf("snapshots: %+v, %v", found, err)
	}
}

func checkPermissions(t *testing.T, d deployed) {
	type row struct {
		user, op, subject string
		want              bool
	}
	var rows []row
	add := func(want bool, user, op string, subjects ...string) {
		for _, subject := range subjects {
			rows = append(rows, row{user, op, subject, want})
		}
	}
	add(true, "launcher", "pub", "$KV.leasehold_leases.p", "$KV.leasehold_queue.l.w", "leasehold.lease.p.granted", "$JS.API.STREAM.INFO.KV_leasehold_leases", "$JS.API.STREAM.PURGE.OBJ_leasehold_evidence",
		"leasehold_profiles.profiles.p.head", "$JS.API.STREAM.PURGE.leasehold_profiles",
		"$JS.API.CONSUMER.CREATE.leasehold_events.leasehold_notify_x", "$JS.ACK.leasehold_events.leasehold_notify_x.1.1.1.1.0",
		natsd.SubscribersAPI+".STREAM.DELETE.leasehold_events", settingsSubject, callSubject+"l")
	add(false, "launcher", "pub", "$JS.API.STREAM.DELETE.KV_leasehold_leases", "$JS.API.STREAM.PURGE.KV_leasehold_leases", "$JS.API.STREAM.UPDATE.KV_leasehold_leases",
		"$JS.API.STREAM.DELETE.KV_leasehold_queue", "$JS.API.STREAM.PURGE.KV_leasehold_queue", "$JS.API.STREAM.UPDATE.KV_leasehold_queue",
		"$JS.API.STREAM.DELETE.leasehold_events", "$JS.API.STREAM.PURGE.leasehold_events", "$JS.API.STREAM.MSG.DELETE.leasehold_events", "$JS.API.STREAM.UPDATE.leasehold_events",
		"$JS.API.STREAM.DELETE.leasehold_profiles", "$JS.API.STREAM.UPDATE.leasehold_profiles", "$JS.API.STREAM.MSG.DELETE.leasehold_profiles", "leasehold_other.p",
		"$JS.API.STREAM.DELETE.OBJ_leasehold_evidence", "$JS.API.STREAM.RESTORE.KV_leasehold_leases", "$JS.API.STREAM.SNAPSHOT.KV_leasehold_leases", "$JS.API.STREAM.CREATE.mine",
		"$JS.API.STREAM.LEADER.STEPDOWN.KV_leasehold_leases", "$KV.other.p", "$O.other.x", "x", "leasehold.other", "_INBOX.x", natsd.FeedSubject, "$SYS.REQ.SERVER.PING", "$JS.API.META.LEADER.STEPDOWN")
	add(true, "launcher", "sub", "_INBOX.x", callSubject+"*")
	add(false, "launcher", "sub", ">", "$KV.>", "$SYS.>", "leasehold.>", "leasehold_profiles.>", "$LEASEHOLD.>", "$JS.>")
	add(true, "subscriber", "pub", "$JS.API.STREAM.INFO.leasehold_events", "$JS.API.CONSUMER.CREATE.leasehold_events.mine", "$JS.ACK.leasehold_events.mine.1.1.1.1.0")
	add(false, "subscriber", "pub", "leasehold.recovery.p.available", "$KV.leasehold_leases.p", "$JS.API.STREAM.DELETE.leasehold_events", "$JS.API.STREAM.CREATE.leasehold_events",
		"$JS.API.STREAM.UPDATE.leasehold_events", "$JS.API.STREAM.PURGE.leasehold_events", "$JS.API.STREAM.MSG.DELETE.leasehold_events", "$JS.API.STREAM.INFO.KV_leasehold_leases",
		"leasehold_profiles.profiles.p.head", "$JS.API.STREAM.MSG.GET.leasehold_profiles", "$JS.API.STREAM.PURGE.leasehold_profiles",
		natsd.FeedSubject, natsd.LaunchersAPI+".CONSUMER.RESET.leasehold_events."+natsd.FeedConsumer, "$JS.FC.leasehold_events."+natsd.FeedConsumer+".abcd",
		natsd.SubscribersAPI+".STREAM.DELETE.leasehold_events", settingsSubject, callSubject+"l", "_INBOX.x", "x")
	add(true, "subscriber", "sub", "leasehold.>", "_INBOX.x")
	add(false, "subscriber", "sub", ">", "$KV.>", "$SYS.>", "$JS.>", "$LEASEHOLD.>", "leasehold_profiles.>", callSubject+"*", natsd.FeedSubject)
	add(true, "monitor", "pub", "$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.JSZ")
	add(false, "monitor", "pub", "$SYS.REQ.SERVER.x.RELOAD", "$SYS.REQ.CLAIMS.UPDATE", "$JS.API.STREAM.DELETE.leasehold_events", "$KV.leasehold_leases.p", "leasehold.lease.p.granted")
	add(false, "monitor", "sub", ">", "leasehold.>", "$SYS.ACCOUNT.>")
	conns := map[string]*nats.Conn{}
	for _, user := range []string{"launcher", "subscriber", "monitor"} {
		conns[user], _ = d.connect(t, user)
	}
	for _, r := range rows {
		nc := conns[r.user]
		before := nc.LastError()
		var err error
		if r.op == "sub" {
			var sub *nats.Subscription
			if sub, err = nc.SubscribeSync(r.subject); err == nil {
				err = errors.Join(nc.Flush(), ignoreInvalid(sub.Unsubscribe()))
			}
		} else {
			// What is no valid request changes nothing, where it is allowed.
			err = nc.Publish(r.subject, []byte("!"))
		}
		if err := errors.Join(err, nc.Flush()); err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		// A refusal comes before the answer to the flush. Error handlers are called later.
		refusal := nc.LastError()
		got := refusal == before
		if !got && (!errors.Is(refusal, nats.ErrPermissionViolation) || !strings.Contains(refusal.Error(), `"`+r.subject+`"`)) {
			t.Errorf("%s %s %s: %v", r.user, r.op, r.subject, refusal)
		}
		if got != r.want {
			t.Errorf("%s %s %s: allowed %v, want %v", r.user, r.op, r.subject, got, r.want)
		}
	}
}

// ignoreInvalid drops the error for a subscription that the server refused.
func ignoreInvalid(err error) error {
	if errors.Is(err, nats.ErrBadSubscription) {
		return nil
	}
	return err
}
