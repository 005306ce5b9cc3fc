package snapshots

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	chunkers "github.com/PlakarKorp/go-cdc-chunkers"
	_ "github.com/PlakarKorp/go-cdc-chunkers/chunkers/fastcdc" // algorithm
	"github.com/klauspost/compress/zstd"

	"leasehold/lease"
)

// The sizes of chunks, in bytes. Chunks are small because Chrome's databases change page by
// page; even the largest chunk, encrypted, fits into one message of NATS.
const (
	smallestChunk = 16 << 10
	usualChunk    = 64 << 10
	largestChunk  = 256 << 10
)

const algorithm = "fastcdc-v1.0.0"

// Chunk is a piece of a file as it is stored: its name, the token of the session whose snapshot
// stored it first, and its size before compression.
type Chunk struct {
	Name  string
	Token lease.Token
	Size  int
}

// MarshalText implements encoding.TextMarshaler: name-token-size.
func (c Chunk) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%s-%d-%d", c.Name, c.Token, c.Size), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Chunk) UnmarshalText(text []byte) error {
	parts := strings.Split(string(text), "-")
	bad := fmt.Errorf("chunk %.80q: want name-token-size", text)
	if len(parts) != 3 || !isName(parts[0]) {
		return bad
	}
	token, err := number(parts[1], 64)
	if err != nil {
		return bad
	}
	size, err := number(parts[2], 31)
	if err != nil || size == 0 || size > largestChunk {
		return bad
	}
	*c = Chunk{Name: parts[0], Token: lease.Token(token), Size: int(size)}
	return nil
}

// number parses a decimal number that is written in its only valid form.
func number(text string, bits int) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, bits)
	if err == nil && strconv.FormatUint(n, 10) != text {
		err = errors.New("not the shortest form")
	}
	return n, err
}

// isName tells whether a text has the form of the names that codec.name makes.
func isName(text string) bool {
	return len(text) == 2*nameSize && strings.Trim(text, "0123456789abcdef") == ""
}

// key is where the chunk is, below the profile's folder. The chunks of each token have a folder
// of their own, so that whoever collects unneeded chunks does not touch what a later holder of
// the profile stores at the same time.
func (c Chunk) key() string { return fmt.Sprintf("%016x/%s", uint64(c.Token), c.Name) }

// split cuts a stream into chunks, and calls each with every one. The slice is valid only
// during the call. The cuts depend on the content around them and on a key, so that an
// insertion moves no other cut, and sizes tell nothing to somebody without the key.
func split(r io.Reader, key []byte, each func([]byte) error) error {
	c, err := chunkers.NewChunker(algorithm, r, &chunkers.ChunkerOpts{
		MinSize: smallestChunk, NormalSize: usualChunk, MaxSize: largestChunk, Key: key,
	})
	if err != nil {
		return fmt.Errorf("chunks: %w", err)
	}
	for {
		piece, err := c.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(piece) > 0 {
			if err := each(piece); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}

// The compressor and the decompressor are safe for concurrent use, and work on the caller's
// goroutine.
var (
	compressor   = must(zstd.NewWriter(nil, zstd.WithEncoderCRC(false)))
	decompressor = must(zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxPlain)))
)

// maxPlain bounds how large one object may become in memory, in bytes.
const maxPlain = 64 << 20

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (c *codec) pack(as string, plain []byte) []byte {
	return c.encrypt(as, compressor.EncodeAll(plain, nil))
}

// unpack reverses pack. The error is ErrDamaged.
func (c *codec) unpack(as string, stored []byte) ([]byte, error) {
	packed, err := c.decrypt(as, stored)
	if err != nil {
		return nil, err
	}
	plain, err := decompressor.DecodeAll(packed, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return plain, nil
}

// open returns the plain content of a stored chunk. The error is ErrDamaged.
func (c *codec) open(chunk Chunk, stored []byte) ([]byte, error) {
	plain, err := c.unpack(chunk.Name, stored)
	if err != nil {
		return nil, err
	}
	if len(plain) != chunk.Size || c.name(plain) != chunk.Name {
		return nil, fmt.Errorf("%w: it has other content than its name says", ErrDamaged)
	}
	return plain, nil
}
