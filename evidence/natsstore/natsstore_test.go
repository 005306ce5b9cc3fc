package natsstore_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"leasehold/evidence"
	"leasehold/evidence/natsstore"
	"leasehold/internal/test/natstest"
	"leasehold/internal/test/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// start runs a server with JetStream that stores its data in dir. Only this process can reach
// it.
func start(t *testing.T, dir string) *server.Server {
	t.Helper()
	return startTaking(t, dir, 0)
}

// startTaking is start for a server that takes messages of a size at most; zero: the usual one.
func startTaking(t *testing.T, dir string, maxPayload int32) *server.Server {
	t.Helper()
	return serve(t, server.Options{StoreDir: dir, MaxPayload: maxPayload})
}

func serve(t *testing.T, o server.Options) *server.Server {
	t.Helper()
	o.ServerName, o.JetStream, o.DontListen, o.NoLog, o.NoSigs, o.SyncAlways = "evidence-test", true, true, true, true, true
	s, err := server.NewServer(&o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server did not start")
	}
	return s
}

func connect(t *testing.T, s nats.InProcessConnProvider, options ...nats.Option) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := nats.Connect("", append(options, nats.InProcessServer(s), nats.ReconnectBufSize(-1))...)
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	t.Cleanup(func() {
		nc.Close()
		<-closed
	})
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

// TestALostAnswerIsNotWaitedFor: a recovery waits until its bundle is saved, and bundles that are
// stored later wait for those before them.
func TestALostAnswerIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	silent := &atomic.Bool{}
	_, js := connect(t, natstest.Forgetful{InProcessConnProvider: start(t, t.TempDir()), Silent: silent})
	spool := storetest.Spool(t)
	a := evidence.NewArchive(spool, natsstore.New(js, natsstore.Config{}), zerolog.Nop())
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	b, err := a.New(evidence.Manifest{EvidenceID: "ev_1", ProfileID: "p"})
	if err != nil {
		t.Fatal(err)
	}
	silent.Store(true)
	if _, _, err := a.Save(ctx, b); err != nil {
		t.Fatal(err)
	}
	if ids, err := spool.Sealed(); err != nil || len(ids) != 1 || ctx.Err() != nil {
		t.Errorf("without answers: %v wait in the spool, %v, the context: %v", ids, err, ctx.Err())
	}
	silent.Store(false)
	if err := a.Flush(ctx); err != nil {
		t.Error(err)
	}
	if ids, err := spool.Sealed(); err != nil || len(ids) != 0 {
		t.Errorf("still in the spool: %v, %v", ids, err)
	}
}

func open(t *testing.T) (evidence.Store, storetest.Damage) {
	_, js := connect(t, start(t, t.TempDir()))
	return bounded{natsstore.New(js, natsstore.Config{})}, damage(js)
}

// bounded gives every call of Part a deadline, as callers do.
type bounded struct{ evidence.Store }

func (b bounded) Part(ctx context.Context, evidenceID, name string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return b.Store.Part(ctx, evidenceID, name)
}

// damage returns functions that change objects through the subjects of the bucket.
func damage(js jetstream.JetStream) storetest.Damage {
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	bucket := func(t *testing.T) jetstream.ObjectStore {
		t.Helper()
		b, err := js.ObjectStore(t.Context(), natsstore.Bucket)
		must(t, err)
		return b
	}
	return storetest.Damage{
		// The chunks are replaced by chunks with other content. The object's metadata stays as
		// it is.
		Change: func(t *testing.T, profileID, evidenceID, name string) {
			b := bucket(t)
			object := profileID + "/" + evidenceID + "/" + name
			info, err := b.GetInfo(t.Context(), object)
			must(t, err)
			content, err := b.GetBytes(t.Context(), object)
			must(t, err)
			content[len(content)-2] ^= 1
			stream, err := js.Stream(t.Context(), "OBJ_"+natsstore.Bucket)
			must(t, err)
			subject := "$O." + natsstore.Bucket + ".C." + info.NUID
			must(t, stream.Purge(t.Context(), jetstream.WithPurgeSubject(subject)))
			for chunk := range slices.Chunk(content, len(content)/int(info.Chunks)+1) {
				_, err := js.Publish(t.Context(), subject, chunk)
				must(t, err)
			}
		},
		Remove: func(t *testing.T, profileID, evidenceID, name string) {
			if name == evidence.ManifestName {
				must(t, bucket(t).Delete(t.Context(), evidenceID))
			}
			must(t, bucket(t).Delete(t.Context(), profileID+"/"+evidenceID+"/"+name))
		},
		Swap: func(t *testing.T, profileID, one, other string) {
			b := bucket(t)
			// The name of each object gets the chunks of the other.
			rename := func(info *jetstream.ObjectInfo, name string) {
				info.Name = name
				meta, err := json.Marshal(info)
				must(t, err)
				msg := nats.NewMsg("$O." + natsstore.Bucket + ".M." + base64.URLEncoding.EncodeToString([]byte(name)))
				msg.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
				msg.Data = meta
				_, err = js.PublishMsg(t.Context(), msg)
				must(t, err)
			}
			swap := func(suffix string) {
				first, err := b.GetInfo(t.Context(), profileID+"/"+one+"/"+suffix)
				must(t, err)
				second, err := b.GetInfo(t.Context(), profileID+"/"+other+"/"+suffix)
				must(t, err)
				was := first.Name
				rename(first, second.Name)
				rename(second, was)
			}
			for _, name := range []string{evidence.ManifestName, "screenshot-1.jpg", "journal.jsonl"} {
				swap(name)
			}
		},
	}
}

func TestStore(t *testing.T) { storetest.Run(t, open) }

// Programs outside this package depend on the layout: the names of the objects, and file storage.
func TestLayout(t *testing.T) {
	_, js := connect(t, start(t, t.TempDir()))
	s := natsstore.New(js, natsstore.Config{})
	b, _ := storetest.Seal(t, storetest.Spool(t), "a.b", "ev_1", 1, evidence.Link{})
	if err := s.Put(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	bucket, err := js.ObjectStore(t.Context(), "leasehold_evidence")
	if err != nil {
		t.Fatal(err)
	}
	status, err := bucket.Status(t.Context())
	if err != nil || status.Storage() != jetstream.FileStorage {
		t.Errorf("storage %v, %v", status.Storage(), err)
	}
	raw, err := bucket.GetBytes(t.Context(), "a=2Eb/ev_1/manifest.json")
	if err != nil || !bytes.Equal(raw, b.Raw) {
		t.Errorf("the manifest's object: %v", err)
	}
	if raw, err = bucket.GetBytes(t.Context(), "ev_1"); err != nil || !bytes.Equal(raw, b.Raw) {
		t.Errorf("the link: %v", err)
	}
	if _, err := s.Manifest(t.Context(), "a=2Eb/ev_1/manifest.json"); !errors.Is(err, evidence.ErrNotFound) {
		t.Errorf("an object's name is taken for an evidence id: %v", err)
	}
}

// TestTheLeaderIsAsked: a replica that lags behind does not have what was just stored, and any replica answers
// direct gets. So nothing is read by these.
func TestTheLeaderIsAsked(t *testing.T) {
	t.Parallel()
	no := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.DIRECT.>"}}}
	s := serve(t, server.Options{StoreDir: t.TempDir(), Users: []*server.User{
		{Username: "writer", Password: "x"}, {Username: "reader", Password: "x", Permissions: no},
	}})
	_, js := connect(t, s, nats.UserInfo("writer", "x"))
	b, head := storetest.Seal(t, storetest.Spool(t), "p", "ev_1", 1, evidence.Link{})
	if err := natsstore.New(js, natsstore.Config{}).Put(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	_, js = connect(t, s, nats.UserInfo("reader", "x"))
	store := natsstore.New(js, natsstore.Config{})
	if r, err := evidence.Verify(t.Context(), store, "p", head); err != nil || !r.OK() {
		t.Errorf("read: %+v, %v", r, err)
	}
	if err := store.Delete(t.Context(), b.Manifest); err != nil {
		t.Errorf("removed: %v", err)
	}
	if _, err := natsstore.Try(t.Context(), js); err != nil {
		t.Errorf("tried: %v", err)
	}
}

func TestLostChunksAreDamage(t *testing.T) {
	_, js := connect(t, start(t, t.TempDir()))
	s := natsstore.New(js, natsstore.Config{})
	b, head := storetest.Seal(t, storetest.Spool(t), "p", "ev_1", 1, evidence.Link{})
	if err := s.Put(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	bucket, err := js.ObjectStore(t.Context(), natsstore.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	info, err := bucket.GetInfo(t.Context(), "p/ev_1/screenshot-1.jpg")
	if err != nil || info.Chunks < 2 {
		t.Fatalf("%+v, %v", info, err)
	}
	stream, err := js.Stream(t.Context(), "OBJ_"+natsstore.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	for _, keep := range []uint64{1, 0} {
		options := []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject("$O." + natsstore.Bucket + ".C." + info.NUID)}
		if keep > 0 {
			options = append(options, jetstream.WithPurgeKeep(keep))
		}
		if err := stream.Purge(t.Context(), options...); err != nil {
			t.Fatal(err)
		}
		r, err := evidence.Verify(t.Context(), s, "p", head)
		if err != nil || len(r.Findings) != 1 || r.Findings[0].Problem != evidence.PartChanged {
			t.Errorf("with %d chunks left: %+v, %v", keep, r, err)
		}
	}
	// Storing the bundle again repairs it.
	if err := s.Put(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if r, err := evidence.Verify(t.Context(), s, "p", head); err != nil || !r.OK() {
		t.Errorf("stored again: %+v, %v", r, err)
	}
}

// Readers do not see a bundle whose link was never written, and it can be stored again.
func TestHalfStoredBundle(t *testing.T) {
	_, js := connect(t, start(t, t.TempDir()))
	s := natsstore.New(js, natsstore.Config{})
	b, _ := storetest.Seal(t, storetest.Spool(t), "p", "ev_1", 1, evidence.Link{})
	if err := s.Put(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "OBJ_"+natsstore.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	link := "$O." + natsstore.Bucket + ".M." + base64.URLEncoding.EncodeToString([]byte("ev_1"))
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject(link)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Manifest(t.Context(), "ev_1"); !errors.Is(err, evidence.ErrNotFound) {
		t.Errorf("without its link: %v", err)
	}
	if list, err := s.List(t.Context(), "p"); err != nil || len(list) != 0 {
		t.Errorf("without its link: listed %v, %v", list, err)
	}
	if err := s.Put(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(t.Context(), "p"); err != nil || len(list) != 1 {
		t.Errorf("stored again: listed %v, %v", list, err)
	}
}

// A server that takes only small messages gets small chunks.
func TestASmallMaxPayload(t *testing.T) {
	_, js := connect(t, startTaking(t, t.TempDir(), 4<<10))
	s := natsstore.New(js, natsstore.Config{})
	b, head := storetest.Seal(t, storetest.Spool(t), "p", "ev_1", 1, evidence.Link{})
	if err := s.Put(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if r, err := evidence.Verify(t.Context(), s, "p", head); err != nil || !r.OK() {
		t.Errorf("%+v, %v", r, err)
	}
}

// If an earlier attempt left chunks without metadata, they are replaced. The new chunks are not
// added to them.
func TestChunksOfAFirstAttemptAreReplaced(t *testing.T) {
	_, js := connect(t, start(t, t.TempDir()))
	s := natsstore.New(js, natsstore.Config{})
	b, head := storetest.Seal(t, storetest.Spool(t), "p", "ev_1", 1, evidence.Link{})
	if err := s.Put(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "OBJ_"+natsstore.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	before, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("$O."+natsstore.Bucket+".M.*")); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if r, err := evidence.Verify(t.Context(), s, "p", head); err != nil || !r.OK() {
		t.Errorf("stored again: %+v, %v", r, err)
	}
	after, err := stream.Info(t.Context())
	if err != nil || after.State.Msgs != before.State.Msgs {
		t.Errorf("%d messages instead of %d, %v", after.State.Msgs, before.State.Msgs, err)
	}
}

// Launchers that start at the same time make only one bucket.
func TestBucketIsMadeOnce(t *testing.T) {
	srv := start(t, t.TempDir())
	var all sync.WaitGroup
	for i := range 8 {
		_, js := connect(t, srv)
		b, _ := storetest.Seal(t, storetest.Spool(t), "p", "ev_"+string(rune('a'+i)), 1, evidence.Link{})
		all.Go(func() {
			if err := natsstore.New(js, natsstore.Config{}).Put(t.Context(), b); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	_, js := connect(t, srv)
	if list, err := natsstore.New(js, natsstore.Config{}).List(t.Context(), "p"); err != nil || len(list) != 8 {
		t.Errorf("listed %d, %v", len(list), err)
	}
}

// Evidence can be read while NATS is away, and is stored there afterwards.
func TestArchiveOverAServerThatWasAway(t *testing.T) {
	dir := t.TempDir()
	srv := start(t, dir)
	nc, js := connect(t, srv)
	spool := storetest.Spool(t)
	a := evidence.NewArchive(spool, natsstore.New(js, natsstore.Config{}), zerolog.Nop())
	srv.Shutdown()
	srv.WaitForShutdown()

	b, err := a.New(evidence.Manifest{EvidenceID: "ev_1", ProfileID: "p"})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Add("a.txt", evidence.KindOutput, "text/plain", []byte("x")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	_, sum, err := a.Save(ctx, b)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := a.Part(ctx, "ev_1", "a.txt"); err != nil || string(got) != "x" {
		t.Errorf("while away: %q, %v", got, err)
	}
	if err := a.Flush(ctx); err == nil {
		t.Error("flushed to a server that is away")
	}
	nc.Close()

	_, js = connect(t, start(t, dir))
	store := natsstore.New(js, natsstore.Config{})
	a = evidence.NewArchive(spool, store, zerolog.Nop())
	if err := a.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if ids, err := spool.Sealed(); err != nil || len(ids) != 0 {
		t.Errorf("still in the spool: %v, %v", ids, err)
	}
	if r, err := evidence.Verify(ctx, store, "p", evidence.Link{EvidenceID: "ev_1", SHA256: sum}); err != nil || !r.OK() {
		t.Errorf("%+v, %v", r, err)
	}
}

// A store that has read from its bucket finds nothing when somebody has removed the bucket, and
// makes another one for the next bundle.
func TestABucketThatIsLost(t *testing.T) {
	_, js := connect(t, start(t, t.TempDir()))
	s := natsstore.New(js, natsstore.Config{})
	b, head := storetest.Seal(t, storetest.Spool(t), "p", "ev_1", 1, evidence.Link{})
	if err := errors.Join(s.Put(t.Context(), b), js.DeleteObjectStore(t.Context(), natsstore.Bucket)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Manifest(t.Context(), "ev_1"); !errors.Is(err, evidence.ErrNotFound) {
		t.Errorf("its manifest: %v", err)
	}
	if list, err := s.List(t.Context(), "p"); err != nil || len(list) != 0 {
		t.Errorf("listed %v, %v", list, err)
	}
	if err := s.Put(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if r, err := evidence.Verify(t.Context(), s, "p", head); err != nil || !r.OK() {
		t.Errorf("stored again: %+v, %v", r, err)
	}
}

// TestWhatIsOnlyPartlyStoredIsRemoved: a picture whose time is over may have left chunks without the
// metadata that names them.
func TestWhatIsOnlyPartlyStoredIsRemoved(t *testing.T) {
	t.Parallel()
	_, js := connect(t, start(t, t.TempDir()))
	s := natsstore.New(js, natsstore.Config{})
	b, _ := storetest.Seal(t, storetest.Spool(t), "a.b", "ev_1", 1, evidence.Link{})
	other, head := storetest.Seal(t, storetest.Spool(t), "a.b", "ev_1.1", 2, evidence.Link{})
	if err := s.Put(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "OBJ_"+natsstore.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("$O."+natsstore.Bucket+".M.*")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Put(t.Context(), other), s.Delete(t.Context(), b.Manifest)); err != nil {
		t.Fatal(err)
	}
	if r, err := evidence.Verify(t.Context(), s, "a.b", head); err != nil || !r.OK() || r.Bundles != 1 {
		t.Errorf("another bundle: %+v, %v", r, err)
	}
	// Its chunks may have any name that the metadata gives, as those of earlier versions.
	bucket, err := js.ObjectStore(t.Context(), natsstore.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bucket.PutBytes(t.Context(), "a=2Eb/ev_1.1/journal.jsonl", []byte("{}\nev_1.1")); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), other.Manifest); err != nil {
		t.Fatal(err)
	}
	if info, err := stream.Info(t.Context()); err != nil || info.State.Msgs != 0 {
		t.Errorf("%d messages are left, %v", info.State.Msgs, err)
	}
}
