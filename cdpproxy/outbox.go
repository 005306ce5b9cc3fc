package cdpproxy

import "github.com/gobwas/ws"

// outbox has the frames that wait for a client. It takes about as much memory as they do, since
// added bytes are never moved again.
type outbox struct {
	chunks  [][]byte  // none is empty
	space   [1][]byte // used again by chunks after it was empty
	spare   []byte    // an empty chunk to be used again
	written int       // how many bytes of the first chunk were written
	size    int       // how many bytes wait
}

const (
	// chunkSize is how many bytes a chunk has room for, unless one frame is larger.
	chunkSize = 64 << 10
	// chunksAtOnce is how many chunks are written in one system call.
	chunksAtOnce = 16
)

// add appends a frame, and copies the payload.
func (o *outbox) add(op ws.OpCode, payload []byte) {
	last := len(o.chunks) - 1
	if last < 0 || len(o.chunks[last])+len(payload) > chunkSize {
		chunk := o.spare
		if len(payload) > cap(chunk) {
			chunk = make([]byte, 0, len(payload)+maxHeader)
		}
		o.spare = nil
		o.chunks = append(o.chunks, chunk)
		last++
	}
	before := len(o.chunks[last])
	o.chunks[last] = append(appendHeader(o.chunks[last], op, len(payload)), payload...)
	o.size += len(o.chunks[last]) - before
}

// addShared appends bytes without a copy. Nobody may change them after that.
func (o *outbox) addShared(b []byte) {
	if len(b) > 0 {
		o.chunks, o.size = append(o.chunks, b[:len(b):len(b)]), o.size+len(b)
	}
}

// write writes as much as the socket takes.
func (o *outbox) write(fd int) error {
	for o.size > 0 {
		var space [chunksAtOnce][]byte
		parts := append(space[:0], o.chunks[:min(len(o.chunks), chunksAtOnce)]...)
		parts[0] = parts[0][o.written:]
		wanted := 0
		for _, part := range parts {
			wanted += len(part)
		}
		n, err := writeParts(fd, parts...)
		if err != nil {
			return err
		}
		o.discard(n)
		if n < wanted {
			return nil
		}
	}
	return nil
}

// discard forgets the first n bytes, which were written.
func (o *outbox) discard(n int) {
	o.size -= n
	o.written += n
	for len(o.chunks) > 0 && o.written >= len(o.chunks[0]) {
		o.written -= len(o.chunks[0])
		if cap(o.chunks[0]) <= chunkSize+maxHeader {
			o.spare = o.chunks[0][:0]
		}
		o.chunks[0] = nil
		o.chunks = o.chunks[1:]
	}
	if len(o.chunks) == 0 {
		o.chunks = o.space[:0]
	}
}
