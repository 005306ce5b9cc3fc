package natsstore_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/evidence"
	"leasehold/evidence/natsstore"
	"leasehold/internal/test/storetest"
)

// listing is a store on a server, with the connection that it uses.
type listing struct {
	*testing.T
	evidence.Store
	nc    *nats.Conn
	js    jetstream.JetStream
	spool *evidence.Spool
}

func newListing(t *testing.T) *listing {
	srv := start(t, t.TempDir())
	_, js := connect(t, srv)
	// In memory, since there are many bundles.
	_, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: natsstore.Bucket, Storage: jetstream.MemoryStorage})
	if err != nil {
		t.Fatal(err)
	}
	nc, own := connect(t, srv)
	return &listing{t, natsstore.New(own, natsstore.Config{}), nc, js, storetest.Spool(t)}
}

// must fails the test if one of the errors is not nil.
func (l *listing) must(errs ...error) {
	l.Helper()
	if err := errors.Join(errs...); err != nil {
		l.Fatal(err)
	}
}

// seal makes a small bundle.
func (l *listing) seal(profileID, evidenceID string) *evidence.Sealed {
	l.Helper()
	b, err := l.spool.New(evidence.Manifest{ProfileID: profileID, EvidenceID: evidenceID})
	l.must(err)
	l.must(b.Add("a.txt", evidence.KindOutput, "text/plain", []byte(evidenceID)))
	_, _, err = b.Seal()
	l.must(err)
	sealed, err := l.spool.Open(evidenceID)
	l.must(err)
	return sealed
}

// lists checks which bundles a list has, and returns what it has cost.
func (l *listing) lists(profileID string, want ...string) (cost nats.Statistics) {
	l.Helper()
	before := l.nc.Stats()
	list, err := l.List(l.Context(), profileID)
	after := l.nc.Stats()
	l.must(err)
	got := []string{}
	for _, m := range list {
		got = append(got, m.EvidenceID)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		l.Errorf("the list of %q has %q, want %q", profileID, got, want)
	}
	return nats.Statistics{InMsgs: after.InMsgs - before.InMsgs, OutMsgs: after.OutMsgs - before.OutMsgs, InBytes: after.InBytes - before.InBytes}
}

// For a list the bucket and the ids are asked for, and then each manifest: its link, its
// metadata, and its chunk.
func requests(bundles int) uint64 { return uint64(2 + 3*bundles) }

// A list costs what it has, whatever others have stored.
func TestAListCostsWhatItHas(t *testing.T) {
	const others = 200
	l := newListing(t)
	l.must(l.Put(t.Context(), l.seal("p.1", "ev_a")), l.Put(t.Context(), l.seal("p.1", "ev.b")))
	alone := l.lists("p.1", "ev.b", "ev_a")
	all := []string{"ev.b", "ev_a"}
	for i := range others {
		evidenceID := fmt.Sprintf("ev_o%03d", i)
		l.must(l.Put(t.Context(), l.seal([]string{"p", "p.1.x", "q"}[i%3], evidenceID)))
		all = append(all, evidenceID)
	}
	if alone.OutMsgs != requests(2) || alone.InMsgs != requests(2) {
		t.Errorf("alone: %d requests and %d answers, want %d", alone.OutMsgs, alone.InMsgs, requests(2))
	}
	if got := l.lists("p.1", "ev.b", "ev_a"); got.OutMsgs != alone.OutMsgs || got.InMsgs != alone.InMsgs || got.InBytes > alone.InBytes+1000 {
		t.Errorf("beside %d bundles of others: %+v; alone: %+v", others, got, alone)
	}
	if got := l.lists("", all...); got.OutMsgs != requests(len(all)) || got.InMsgs != requests(len(all)) {
		t.Errorf("everything: %d requests and %d answers, want %d", got.OutMsgs, got.InMsgs, requests(len(all)))
	}
}

// What lies under the name of a profile's manifest without being one is not listed: chunks
// without an object, and a link to the bundle of another profile.
func TestChunksAreNoBundles(t *testing.T) {
	l := newListing(t)
	l.must(l.Put(t.Context(), l.seal("q", "ev_1")))
	for _, name := range []string{"p.ev_1.x", "p.ev_none.x", "p.x", "p.a$b.x", "x"} {
		_, err := l.js.Publish(t.Context(), "$O."+natsstore.Bucket+".C.manifest."+name, []byte("{}"))
		l.must(err)
	}
	l.lists("p")
	l.lists("", "ev_1")
}
