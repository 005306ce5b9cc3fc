// Package natsstore keeps evidence in a NATS Object Store.
//
// The bucket has one object for each part, <profile key>/<evidence id>/<part>, one for the
// manifest, and a link to the manifest whose name is the evidence id alone. The link is written
// last: without it, readers do not see the bundle.
//
// The server can tell the objects of a profile from others only by the subjects of their chunks,
// since those of their metadata are encoded. So the subjects of chunks begin with the profile and the
// evidence id. A list asks for those of manifests: there is no index beside the bundles that could
// be wrong. And what was stored of a bundle can be removed even if its metadata was not.
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
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/evidence"
	"leasehold/internal/natsget"
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
	js  jetstream.JetStream
	cfg Config
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
	bucket jetstream.ObjectStore
	stream jetstream.Stream
	m      evidence.Manifest
	folder string // beginning of the objects' names
}

// Begin implements evidence.Files.
func (s *files) Begin(ctx context.Context, m evidence.Manifest) (evidence.Upload, error) {
	ctx = eachBounded{ctx}
	bucket, err := s.bindOrMake(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := s.stream(ctx)
	return upload{s, bucket, stream, m, folderName(m.ProfileID, m.EvidenceID)}, err
}

// Part implements evidence.Upload.
func (u upload) Part(ctx context.Context, name string, content []byte) error {
	_, err := u.put(eachBounded{ctx}, u.stream, u.describe(name, allParts, content), content, true)
	return err
}

// Seal implements evidence.Upload. The link is written last, for this manifest alone: a bundle
// that an earlier attempt left without one gets it.
func (u upload) Seal(ctx context.Context, content []byte) error {
	ctx = eachBounded{ctx}
	info, err := u.put(ctx, u.stream, u.describe(evidence.ManifestName, allManifests, content), content, false)
	if isWrongSequence(err) {
		// Another launcher was first, with the same bundle or with another one.
		if raw, getErr := u.object(ctx, u.folder+evidence.ManifestName); getErr == nil && !bytes.Equal(raw, content) {
			err = evidence.ErrConflict
		}
	}
	if err != nil {
		return err
	}
	if _, err := u.bucket.AddLink(ctx, u.m.EvidenceID, info); err != nil {
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
	old, seen, err := s.metaOf(ctx, info.Name)
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

// describe returns the metadata of the object that is a file of the bundle. all is the beginning of the
// names of the chunks of such files.
func (u upload) describe(file, all string, content []byte) *jetstream.ObjectInfo {
	name, chunkSize := u.folder+file, u.chunkSize()
	sum := sha256.Sum256(content)
	key := sha256.Sum256(append([]byte(name+"\n"), sum[:]...))
	return &jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: uint32(chunkSize)}},
		Bucket:     Bucket, NUID: chunksOf(all, u.m.ProfileID, u.m.EvidenceID) + hex.EncodeToString(key[:16]), Size: uint64(len(content)),
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

// stream looks the bucket's stream up. It returns ErrNotFound if there is none.
func (s *files) stream(ctx context.Context) (jetstream.Stream, error) {
	stream, err := s.js.Stream(ctx, streamName)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, evidence.ErrNotFound
	}
	return stream, err
}

// Get implements evidence.Source. It finds the object by the bundle's link.
func (s *files) Get(ctx context.Context, evidenceID, name string) ([]byte, error) {
	link, _, err := s.metaOf(ctx, evidenceID)
	if err != nil {
		return nil, translate(err)
	}
	folder, ok := folderOf(link)
	if !ok {
		return nil, evidence.ErrNotFound
	}
	return s.object(ctx, folder+name)
}

// object reads an object, one chunk after the other.
func (s *files) object(ctx context.Context, name string) ([]byte, error) {
	info, _, err := s.metaOf(ctx, name)
	if err != nil {
		return nil, translate(err)
	}
	want, err := jetstream.DecodeObjectDigest(info.Digest)
	if err != nil || !isLiteral(info.NUID) || info.Opts != nil && info.Opts.Link != nil {
		return nil, fmt.Errorf("%w: what stands for it is not what a launcher writes", evidence.ErrDamaged)
	}
	var content []byte
	for n, after := uint32(0), uint64(0); n < info.Chunks && uint64(len(content)) <= info.Size; n++ {
		m, err := s.message(ctx, natsget.Request{NextFor: chunkSubject(info), Seq: after + 1})
		if errors.Is(err, natsget.ErrNone) {
			return nil, lost(uint64(n), info)
		}
		if err != nil {
			return nil, err
		}
		content, after = append(content, m.Data...), m.Seq
	}
	if sum := sha256.Sum256(content); !bytes.Equal(want, sum[:]) {
		return nil, translate(jetstream.ErrDigestMismatch)
	}
	return content, nil
}

const (
	// api is the prefix of JetStream's subjects.
	api = "$JS.API"
	// answerTime is how long the server may take to answer one request.
	answerTime = 5 * time.Second
)

// message returns a message of the bucket's stream. Its leader is asked: what a replica that lags behind does
// not have yet would be taken for lost.
func (s *files) message(ctx context.Context, which natsget.Request) (natsget.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return natsget.Ask(ctx, s.js.Conn(), api, streamName, which)
}

// metaOf returns an object's metadata, or jetstream's ErrObjectNotFound or ErrBadObjectMeta. It
// also returns the sequence of whatever is stored under the object's name; zero means that nothing
// is.
func (s *files) metaOf(ctx context.Context, name string) (*jetstream.ObjectInfo, uint64, error) {
	m, err := s.message(ctx, natsget.Request{LastFor: metaSubject(name)})
	if errors.Is(err, natsget.ErrNone) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, 0, jetstream.ErrObjectNotFound
	}
	if err != nil {
		return nil, 0, err
	}
	var info jetstream.ObjectInfo
	if json.Unmarshal(m.Data, &info) != nil {
		return nil, m.Seq, jetstream.ErrBadObjectMeta
	}
	if info.Deleted {
		return nil, m.Seq, jetstream.ErrObjectNotFound
	}
	return &info, m.Seq, nil
}

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
		return lost(have, info)
	}
	return nil
}

func lost(have uint64, info *jetstream.ObjectInfo) error {
	return fmt.Errorf("%w: %d of %d chunks are there", evidence.ErrDamaged, have, info.Chunks)
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
	folder := folderName(m.ProfileID, m.EvidenceID)
	for _, p := range m.Parts {
		if p.Missing == "" {
			if err := s.removeObject(ctx, stream, folder+p.Name); err != nil {
				return err
			}
		}
	}
	// Chunks are stored before their metadata: some may be there without it.
	unnamed := func(all string) jetstream.StreamPurgeOpt {
		return jetstream.WithPurgeSubject(chunksNamed(chunksOf(all, m.ProfileID, m.EvidenceID) + ">"))
	}
	if err := stream.Purge(ctx, unnamed(allParts)); err != nil {
		return err
	}
	for _, name := range []string{m.EvidenceID, folder + evidence.ManifestName} {
		if err := s.removeObject(ctx, stream, name); err != nil {
			return err
		}
	}
	return stream.Purge(ctx, unnamed(allManifests))
}

// removeObject removes an object, and the chunks that its metadata names.
func (s *files) removeObject(ctx context.Context, stream jetstream.Stream, name string) error {
	meta, err := s.message(ctx, natsget.Request{LastFor: metaSubject(name)})
	if errors.Is(err, natsget.ErrNone) {
		return nil
	}
	if err != nil {
		return err
	}
	var info jetstream.ObjectInfo
	if json.Unmarshal(meta.Data, &info) == nil && isLiteral(info.NUID) {
		if err := stream.Purge(ctx, jetstream.WithPurgeSubject(chunkSubject(&info))); err != nil {
			return err
		}
	}
	return stream.Purge(ctx, jetstream.WithPurgeSubject(metaSubject(name)))
}
