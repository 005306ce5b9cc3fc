// Package natsstore keeps evidence in a NATS Object Store.
//
// The bucket has one object for each part, <profile key>/<evidence id>/<part>, one for the
// manifest, and a link to the manifest whose name is the evidence id alone. The link is written
// last: without it, readers do not see the bundle.
//
// The server can tell the objects of a profile from others only by the subjects of their chunks,
// since those of their metadata are encoded. So the subjects of a manifest's chunks begin with
// its profile and its evidence id, and a list asks for these. There is no index beside the
// bundles that could be wrong.
package natsstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/evidence"
)

// Bucket is the name of the object store.
const Bucket = "leasehold_evidence"

// Config says how the bucket is made if there is none. An existing bucket is used as it is.
type Config struct {
	Replicas int // zero stands for 1
}

// New returns the store in a bucket. It does not ask the server: calls look the bucket up,
// and Put makes it if there is none. So the caller need not do anything if the server is away at
// the start, or if the bucket is lost. Put, Manifest and Part fail if the server does not answer
// one of their requests for some seconds; the other methods are bounded by their context alone.
func New(js jetstream.JetStream, cfg Config) evidence.Store {
	return evidence.NewStore(&files{js: js, cfg: cfg})
}

type files struct {
	js    jetstream.JetStream
	cfg   Config
	found atomic.Pointer[jetstream.Stream] // the bucket's stream, when it was last looked up
}

// toKey is an id as it stands in keys, where dots are separators.
func toKey(id string) string { return strings.ReplaceAll(id, ".", "=2E") }

// fromKey is the opposite of toKey.
func fromKey(key string) string { return strings.ReplaceAll(key, "=2E", ".") }

// folderName is the beginning of the names of a bundle's objects.
func folderName(profileID, evidenceID string) string {
	return toKey(profileID) + "/" + evidenceID + "/"
}

// eachBounded is a context that hides its deadline. The library then gives each request a
// timeout of a few seconds: an answer that was lost with a connection never comes, and would
// hold up everything that waits behind it until the deadline. It is for single requests only: a
// method of the library that makes several requests by itself gets the caller's deadline.
type eachBounded struct{ context.Context }

// Deadline implements context.Context.
func (eachBounded) Deadline() (time.Time, bool) { return time.Time{}, false }

// upload stores the objects of one bundle.
type upload struct {
	*files
	bucket     jetstream.ObjectStore
	stream     jetstream.Stream
	folder     string // beginning of the objects' names
	chunks     string // beginning of the name of the manifest's chunks
	evidenceID string
}

// Begin implements evidence.Files.
func (s *files) Begin(ctx context.Context, m evidence.Manifest) (evidence.Upload, error) {
	ctx = eachBounded{ctx}
	bucket, err := s.bindOrMake(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := s.stream(ctx)
	return upload{s, bucket, stream, folderName(m.ProfileID, m.EvidenceID), manifestChunks(m.ProfileID) + toKey(m.EvidenceID) + ".", m.EvidenceID}, err
}

// Part implements evidence.Upload.
func (u upload) Part(ctx context.Context, name string, content []byte) error {
	_, err := u.put(eachBounded{ctx}, u.stream, describe(u.folder+name, partChunks, content, u.chunkSize()), content, true)
	return err
}

// Seal implements evidence.Upload. The link is written last, for this manifest alone: a bundle
// that an earlier attempt left without one gets it.
func (u upload) Seal(ctx context.Context, content []byte) error {
	ctx = eachBounded{ctx}
	info, err := u.put(ctx, u.stream, describe(u.folder+evidence.ManifestName, u.chunks, content, u.chunkSize()), content, false)
	if isWrongSequence(err) {
		// Another launcher was first, with the same bundle or with another one.
		if raw, getErr := u.object(ctx, u.stream, u.folder+evidence.ManifestName); getErr == nil && !bytes.Equal(raw, content) {
			err = evidence.ErrConflict
		}
	}
	if err != nil {
		return err
	}
	if _, err := u.bucket.AddLink(ctx, u.evidenceID, info); err != nil {
		return fmt.Errorf("the link to it: %w", err)
	}
	return nil
}

// chunkSize is the chunk size that other clients of the object store use.
const chunkSize = 128 << 10

// headerRoom is what is left of a server's max_payload for the headers of a message.
const headerRoom = 1 << 10

func (s *files) chunkSize() int {
	if most := int(s.js.Conn().MaxPayload()) - headerRoom; most > 0 {
		return min(chunkSize, most)
	}
	return chunkSize
}

// put writes an object as the bucket's Put does (ADR-20), with two differences. Each chunk is
// acknowledged before the next is sent, since the library's asynchronous publisher can leave a
// goroutine behind for good (nats.go 1.55). And the name of the chunks follows from the object's
// name and content, so that a second attempt replaces what the first left incomplete, and does
// nothing if the object is complete. If there is a complete object with other content, put
// replaces it only if replace is true; otherwise it returns ErrConflict.
func (s *files) put(ctx context.Context, stream jetstream.Stream, info *jetstream.ObjectInfo, content []byte, replace bool) (*jetstream.ObjectInfo, error) {
	// The decisions below hold for this state of the object. The server refuses the write in any
	// other state, so that a sealed bundle is never overwritten.
	old, seen, err := metaOf(ctx, stream, info.Name)
	switch {
	case err == nil && old.Digest == info.Digest && checkChunks(ctx, stream, old) == nil:
		return old, nil
	case err == nil && !replace && checkChunks(ctx, stream, old) == nil:
		return nil, evidence.ErrConflict
	case err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) && !errors.Is(err, jetstream.ErrBadObjectMeta):
		return nil, err
	}
	// If an earlier attempt left chunks without metadata, the server refuses the first chunk.
	err = s.publishChunks(ctx, info, content)
	if isWrongSequence(err) {
		if err = stream.Purge(ctx, jetstream.WithPurgeSubject(chunkSubject(info))); err == nil {
			err = s.publishChunks(ctx, info, content)
		}
	}
	if err == nil {
		err = s.publishMeta(ctx, info, seen)
	}
	if err != nil {
		return nil, err
	}
	if old != nil && old.NUID != info.NUID && isLiteral(old.NUID) {
		// The chunks of the replaced object do no harm if they stay.
		_ = stream.Purge(ctx, jetstream.WithPurgeSubject(chunkSubject(old)))
	}
	return info, nil
}

// describe returns the metadata of an object that is stored in chunks of a size, whose subjects
// begin with a prefix.
func describe(name, prefix string, content []byte, chunkSize int) *jetstream.ObjectInfo {
	sum := sha256.Sum256(content)
	key := sha256.Sum256(append([]byte(name+"\n"), sum[:]...))
	return &jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: uint32(chunkSize)}},
		Bucket:     Bucket, NUID: prefix + hex.EncodeToString(key[:16]), Size: uint64(len(content)),
		Chunks: uint32((len(content) + chunkSize - 1) / chunkSize),
		Digest: "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:]),
	}
}

// publishChunks sends an object's chunks. The server refuses the first one if there are chunks
// already.
func (s *files) publishChunks(ctx context.Context, info *jetstream.ObjectInfo, content []byte) error {
	first := []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(0)}
	for chunk := range slices.Chunk(content, int(info.Opts.ChunkSize)) {
		if _, err := s.js.Publish(ctx, chunkSubject(info), chunk, first...); err != nil {
			return err
		}
		first = nil
	}
	return nil
}

// publishMeta sends an object's metadata, if the stored metadata still has the sequence that was
// seen; zero means that there is none.
func (s *files) publishMeta(ctx context.Context, info *jetstream.ObjectInfo, seen uint64) error {
	meta, err := json.Marshal(info)
	if err != nil {
		return err
	}
	msg := nats.NewMsg(metaSubject(info.Name))
	msg.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	msg.Data = meta
	_, err = s.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(seen))
	return err
}

const streamName = "OBJ_" + Bucket

// metaSubject is the subject of an object's metadata, and chunkSubject that of its chunks.
func metaSubject(name string) string {
	return "$O." + Bucket + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
}

func chunkSubject(info *jetstream.ObjectInfo) string { return chunksNamed(info.NUID) }

func chunksNamed(name string) string { return "$O." + Bucket + ".C." + name }

// isLiteral tells whether the stored name of an object's chunks stands for a single subject.
// Somebody who tampered with the store could have made it a wildcard.
func isLiteral(nuid string) bool {
	return !strings.ContainsAny(nuid, "*> ") && !slices.Contains(strings.Split(nuid, "."), "")
}

// bindOrMake looks the bucket up, and makes it in file storage if there is none. Another
// launcher may be making it at the same time.
func (s *files) bindOrMake(ctx context.Context) (jetstream.ObjectStore, error) {
	for {
		bucket, err := s.js.ObjectStore(ctx, Bucket)
		if !errors.Is(err, jetstream.ErrBucketNotFound) {
			return bucket, err
		}
		bucket, err = s.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
			Bucket: Bucket, Description: "Leasehold: sealed evidence", Storage: jetstream.FileStorage, Replicas: max(s.cfg.Replicas, 1),
		})
		if !errors.Is(err, jetstream.ErrBucketExists) {
			return bucket, err
		}
	}
}

// bind looks the bucket up. It returns ErrNotFound if there is none.
func (s *files) bind(ctx context.Context) (jetstream.ObjectStore, error) {
	bucket, err := s.js.ObjectStore(ctx, Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, evidence.ErrNotFound
	}
	return bucket, err
}

// stream looks the bucket's stream up. It returns ErrNotFound if there is none.
func (s *files) stream(ctx context.Context) (jetstream.Stream, error) {
	stream, err := s.js.Stream(ctx, streamName)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, evidence.ErrNotFound
	}
	if err == nil {
		s.found.Store(&stream)
	}
	return stream, err
}

// Get implements evidence.Source. It looks the stream up if nobody has yet, or if the server no
// longer has it.
func (s *files) Get(ctx context.Context, evidenceID, name string) ([]byte, error) {
	if found := s.found.Load(); found != nil {
		content, err := s.get(ctx, *found, evidenceID, name)
		if !errors.Is(err, nats.ErrNoResponders) && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return content, err
		}
	}
	stream, err := s.stream(eachBounded{ctx})
	if err != nil {
		return nil, err
	}
	return s.get(ctx, stream, evidenceID, name)
}

// get reads an object of a bundle, which it finds by the bundle's link.
func (s *files) get(ctx context.Context, stream jetstream.Stream, evidenceID, name string) ([]byte, error) {
	link, _, err := metaOf(eachBounded{ctx}, stream, evidenceID)
	if err != nil {
		return nil, translate(err)
	}
	folder, ok := folderOf(link)
	if !ok {
		return nil, evidence.ErrNotFound
	}
	return s.object(ctx, stream, folder+name)
}

func (s *files) object(ctx context.Context, stream jetstream.Stream, name string) ([]byte, error) {
	requests := eachBounded{ctx}
	info, _, err := metaOf(requests, stream, name)
	if err != nil {
		return nil, translate(err)
	}
	if content, ok := onlyChunk(requests, stream, info); ok {
		return content, nil
	}
	// If chunks are gone, GetBytes would wait for them until its time is up.
	if err := checkChunks(requests, stream, info); err != nil {
		return nil, err
	}
	bucket, err := s.bind(requests)
	if err != nil {
		return nil, err
	}
	// If a chunk is lost on the way, GetBytes waits until its time is up, even if its context is
	// cancelled meanwhile: a launcher that is being stopped waits that long, too.
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	content, err := bucket.GetBytes(ctx, name)
	return content, translate(err)
}

// onlyChunk returns the content of an object that has one chunk, as nearly all have. It requests
// only that chunk, whereas GetBytes would make a consumer and remove it again. ok is false if
// the content is not that of a single chunk, or if the server that answered may not have it yet.
func onlyChunk(ctx context.Context, stream jetstream.Stream, info *jetstream.ObjectInfo) (content []byte, ok bool) {
	if info.Chunks != 1 || info.Opts != nil && info.Opts.Link != nil || !isLiteral(info.NUID) {
		return nil, false
	}
	msg, err := lastMessage(ctx, stream, chunkSubject(info))
	if err != nil {
		return nil, false
	}
	want, err := jetstream.DecodeObjectDigest(info.Digest)
	sum := sha256.Sum256(msg.Data)
	return msg.Data, err == nil && bytes.Equal(want, sum[:])
}

// freshTime is how long a cluster may take until one of its servers answers requests about a
// stream that was just made.
const freshTime = 2 * time.Second

func lastMessage(ctx context.Context, stream jetstream.Stream, subject string) (*jetstream.RawStreamMsg, error) {
	for end := time.Now().Add(freshTime); ; {
		msg, err := stream.GetLastMsgForSubject(ctx, subject)
		if !errors.Is(err, nats.ErrNoResponders) || time.Now().After(end) {
			return msg, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// metaOf returns an object's metadata, or jetstream's ErrObjectNotFound or ErrBadObjectMeta. It
// also returns the sequence of whatever is stored under the object's name; zero means that nothing
// is.
func metaOf(ctx context.Context, stream jetstream.Stream, name string) (*jetstream.ObjectInfo, uint64, error) {
	msg, err := lastMessage(ctx, stream, metaSubject(name))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, 0, jetstream.ErrObjectNotFound
	}
	if err != nil {
		return nil, 0, err
	}
	var info jetstream.ObjectInfo
	if json.Unmarshal(msg.Data, &info) != nil {
		return nil, msg.Sequence, jetstream.ErrBadObjectMeta
	}
	if info.Deleted {
		return nil, msg.Sequence, jetstream.ErrObjectNotFound
	}
	return &info, msg.Sequence, nil
}

// readTimeout is how long reading one object may take.
const readTimeout = time.Minute

// isWrongSequence tells whether the server refused a write because the object is not as it was
// when it was read.
func isWrongSequence(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
}

// translate returns an error of package evidence if the server says that an object does not exist
// or is damaged. Other errors stay as they are.
func translate(err error) error {
	switch {
	case errors.Is(err, jetstream.ErrObjectNotFound):
		return evidence.ErrNotFound
	case errors.Is(err, jetstream.ErrDigestMismatch), errors.Is(err, jetstream.ErrBadObjectMeta):
		return fmt.Errorf("%w: %w", evidence.ErrDamaged, err)
	}
	return err
}

// folderOf returns the folderName of the bundle to which a link belongs. ok is false if the
// object is not the link of a bundle.
func folderOf(info *jetstream.ObjectInfo) (folder string, ok bool) {
	if info.Opts == nil || info.Opts.Link == nil {
		return "", false
	}
	folder, ok = strings.CutSuffix(info.Opts.Link.Name, evidence.ManifestName)
	return folder, ok && strings.HasSuffix(folder, "/"+info.Name+"/")
}

// checkChunks returns ErrDamaged if chunks of an object are gone.
func checkChunks(ctx context.Context, stream jetstream.Stream, info *jetstream.ObjectInfo) error {
	state, err := stream.Info(ctx, jetstream.WithSubjectFilter(chunkSubject(info)))
	if err != nil {
		return err
	}
	if have := state.State.Subjects[chunkSubject(info)]; have != uint64(info.Chunks) {
		return fmt.Errorf("%w: %d of %d chunks are there", evidence.ErrDamaged, have, info.Chunks)
	}
	return nil
}

// Remove implements evidence.Files. It leaves nothing of the objects: neither their chunks nor
// the markers that the bucket's own Delete leaves.
func (s *files) Remove(ctx context.Context, m evidence.Manifest) error {
	stream, err := s.stream(ctx)
	if errors.Is(err, evidence.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	bucket, err := s.bind(ctx)
	if err != nil {
		return err
	}
	folder := folderName(m.ProfileID, m.EvidenceID)
	names := []string{}
	for _, p := range m.Parts {
		if p.Missing == "" {
			names = append(names, folder+p.Name)
		}
	}
	for _, name := range append(names, m.EvidenceID, folder+evidence.ManifestName) {
		info, err := bucket.GetInfo(ctx, name, jetstream.GetObjectInfoShowDeleted())
		switch {
		case errors.Is(err, jetstream.ErrObjectNotFound):
			continue
		case err != nil && !errors.Is(err, jetstream.ErrBadObjectMeta):
			return err
		}
		if info != nil && isLiteral(info.NUID) {
			if err := stream.Purge(ctx, jetstream.WithPurgeSubject(chunkSubject(info))); err != nil {
				return err
			}
		}
		if err := stream.Purge(ctx, jetstream.WithPurgeSubject(metaSubject(name))); err != nil {
			return err
		}
	}
	return nil
}
