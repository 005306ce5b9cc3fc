// Package objects says what a place for objects has to do, of which there are three: a bucket of S3,
// a stream of NATS, a directory.
package objects

import (
	"context"
	"errors"
)

// Objects is such a place. The keys that every one takes are names of a-z, 0-9 and -, with single
// slashes between them. The methods are safe for concurrent use, and each is bounded by its
// context. When Put returns, the object is on disk.
type Objects interface {
	// Get returns an object and its version, or ErrNone. The version can be passed to Put.
	Get(ctx context.Context, key string) (content []byte, version string, err error)
	// Put writes an object if the present one has that version; the empty version says that
	// there is none. Otherwise it writes nothing and returns ErrOtherVersion. The server itself
	// compares: of two writes at the same time one is refused.
	Put(ctx context.Context, key string, content []byte, version string) error
	// Delete removes an object. It is no error if there is none.
	Delete(ctx context.Context, key string) error
	// List returns the keys that begin with a prefix, which is empty or ends in a slash,
	// in any order.
	List(ctx context.Context, prefix string) ([]string, error)
	// Folders returns the names of the folders directly below a prefix, which ends in a slash,
	// in any order. It changes nothing.
	Folders(ctx context.Context, prefix string) ([]string, error)
}

// Errors of Objects.
var (
	// ErrNone says that there is no such object.
	ErrNone = errors.New("there is no such object")
	// ErrOtherVersion says that the object is not the one that was to be replaced.
	ErrOtherVersion = errors.New("somebody else wrote the object")
)
