// Package testlog keeps what a test's logger writes.
package testlog

import (
	"bytes"
	"sync"
)

// Buffer may be read while others still write to it. The zero value is empty.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write never fails.
func (l *Buffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// String is all that was written until now.
func (l *Buffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
