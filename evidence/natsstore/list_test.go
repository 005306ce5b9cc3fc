package natsstore_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/evidence"
	"leasehold/evidence/natsstore"
	"leasehold/evidence/storetest"
	"leasehold/internal/id"
)

// listing is a store on a server, with the connection that it uses.
type listing struct {
	*testing.T
	evidence.Store
	nc     *nats.Conn
	js     jetstream.JetStream
	bucket jetstream.ObjectStore
	spool  *evidence.Spool
}

func newListing(t *testing.T) *listing {
	srv := start(t, t.TempDir())
	_, js := connect(t, srv)
	// In memory, since there are many bundles.
	bucket, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: natsstore.Bucket, Storage: jetstream.MemoryStorage})
	if err != nil {
		t.Fatal(err)
	}
	nc, own := connect(t, srv)
	return &listing{t, natsstore.New(own, natsstore.Config{}), nc, js, bucket, storetest.Spool(t)}
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

// earlier stores a bundle as an earlier version did, in whose names of chunks is no dot.
func (l *listing) earlier(profileID, evidenceID string) *evidence.Sealed {
	l.Helper()
	b := l.seal(profileID, evidenceID)
	folder := profileID + "/" + evidenceID + "/"
	part, err := b.Part("a.txt")
	l.must(err)
	l.object(folder+"a.txt", part)
	info := l.object(folder+evidence.ManifestName, b.Raw)
	_, err = l.bucket.AddLink(l.Context(), evidenceID, info)
	l.must(err)
	return b
}

// object stores an object. The library's own way leaves a goroutine behind.
func (l *listing) object(name string, content []byte) *jetstream.ObjectInfo {
	l.Helper()
	sum := sha256.Sum256(content)
	info := &jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{Name: name}, Bucket: natsstore.Bucket, NUID: id.New("o"), Size: uint64(len(content)), Chunks: 1,
		Digest: "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:]),
	}
	_, err := l.js.Publish(l.Context(), "$O."+natsstore.Bucket+".C."+info.NUID, content)
	l.must(err)
	l.meta(info)
	return info
}

func (l *listing) meta(info *jetstream.ObjectInfo) {
	l.Helper()
	raw, err := json.Marshal(info)
	l.must(err)
	_, err = l.js.Publish(l.Context(), metaSubject(info.Name), raw)
	l.must(err)
}

func metaSubject(name string) string {
	return "$O." + natsstore.Bucket + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
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

// For a list the bucket, the bundles of earlier versions and the ids are asked for, and then
// each manifest: its link, its metadata, and its chunk.
func requests(bundles int) uint64 { return uint64(3 + 3*bundles) }

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

// Bundles of earlier versions are listed beside others. The bucket is read for them once, and
// again when an earlier version has stored something since.
func TestBundlesOfAnEarlierVersion(t *testing.T) {
	l := newListing(t)
	first := l.earlier("p", "ev_1")
	l.earlier("q", "ev_2")
	l.must(l.Put(t.Context(), l.seal("p", "ev_3")))
	l.lists("p", "ev_1", "ev_3")
	if got := l.lists("p", "ev_1", "ev_3"); got.OutMsgs != requests(2) {
		t.Errorf("the second time: %d requests, want %d", got.OutMsgs, requests(2))
	}
	l.lists("q", "ev_2")
	l.earlier("p", "ev_4")
	l.lists("p", "ev_1", "ev_3", "ev_4")
	l.lists("", "ev_1", "ev_2", "ev_3", "ev_4")

	l.must(l.Put(t.Context(), first)) // which is there
	l.lists("p", "ev_1", "ev_3", "ev_4")
	l.must(l.bucket.Delete(t.Context(), "ev_4"), l.Delete(t.Context(), first.Manifest))
	l.lists("p", "ev_3")
	l.lists("", "ev_2", "ev_3")
	stream, err := l.js.Stream(t.Context(), "OBJ_"+natsstore.Bucket)
	l.must(err)
	for _, name := range []string{"ev_1", "p/ev_1/a.txt", "p/ev_1/manifest.json"} {
		if _, err := l.bucket.GetInfo(t.Context(), name, jetstream.GetObjectInfoShowDeleted()); !errors.Is(err, jetstream.ErrObjectNotFound) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter("$O."+natsstore.Bucket+".C.*"))
	l.must(err)
	if left := len(info.State.Subjects); left != 4 { // of ev_2, and of ev_4, whose link alone was removed
		t.Errorf("%d objects of an earlier version have chunks, want 4", left)
	}
}

// A bundle that an earlier version completes only after the bucket was read for such bundles is
// found by the next list of everything.
func TestABundleThatAnEarlierVersionCompletesLate(t *testing.T) {
	l := newListing(t)
	b := l.earlier("p", "ev_1")
	info, err := l.bucket.GetInfo(t.Context(), "p/ev_1/manifest.json")
	l.must(err)
	stream, err := l.js.Stream(t.Context(), "OBJ_"+natsstore.Bucket)
	l.must(err)
	l.must(stream.Purge(t.Context(), jetstream.WithPurgeSubject(metaSubject(info.Name))))
	l.must(stream.Purge(t.Context(), jetstream.WithPurgeSubject(metaSubject("ev_1"))))
	l.lists("p")
	l.meta(info)
	_, err = l.bucket.AddLink(t.Context(), "ev_1", info)
	l.must(err)
	l.lists("p")
	l.lists("", "ev_1")
	l.lists("p", "ev_1")
	if got, err := l.Manifest(t.Context(), "ev_1"); err != nil || !bytes.Equal(got, b.Raw) {
		t.Errorf("its manifest: %v", err)
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
