package cdpproxy

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/gobwas/ws"
)

// violation is a way in which a client broke the websocket protocol. The connection is closed
// with its code and reason.
type violation struct {
	code   ws.StatusCode
	reason string
}

func (v *violation) Error() string { return "the client broke the websocket protocol: " + v.reason }

var (
	errMask         = &violation{ws.StatusProtocolError, "a frame without a mask"}
	errReserved     = &violation{ws.StatusProtocolError, "reserved bits, but no extension was agreed on"}
	errOpcode       = &violation{ws.StatusProtocolError, "an unknown kind of frame"}
	errControl      = &violation{ws.StatusProtocolError, "a control frame in fragments, or of more than 125 bytes"}
	errLength       = &violation{ws.StatusProtocolError, "a length of more than 63 bits"}
	errContinuation = &violation{ws.StatusProtocolError, "a continuation without a start"}
	errInterrupted  = &violation{ws.StatusProtocolError, "a new message before the end of the one before"}
	errBinary       = &violation{CloseBadData, "a binary message; CDP is text"}
	errNotUTF8      = &violation{ws.StatusInvalidFramePayloadData, "text that is not UTF-8"}
	errTooBig       = &violation{CloseTooBig, "a message that would end Chrome's pipe: it takes less than 100 MiB"}
	errCloseCode    = &violation{ws.StatusProtocolError, "a close code that may not be sent"}
)

type frame struct {
	op     ws.OpCode
	fin    bool
	mask   [4]byte
	length int // of the payload, in bytes
	size   int // of the header, in bytes
}

// parseFrame reads the header at the beginning of b. ok is false if there is a violation, or if
// b is too short for the header. fragments is how many bytes of a fragmented message came
// before; -1 if no such message has begun.
func parseFrame(b []byte, fragments int) (f frame, ok bool, err *violation) {
	if len(b) < 2 {
		return f, false, nil
	}
	f.fin, f.op = b[0]&0x80 != 0, ws.OpCode(b[0]&0x0f)
	length := uint64(b[1] & 0x7f)
	switch {
	case b[0]&0x70 != 0:
		return f, false, errReserved
	case b[1]&0x80 == 0:
		return f, false, errMask
	}
	switch f.op {
	case ws.OpPing, ws.OpPong, ws.OpClose:
		if !f.fin || length > 125 {
			return f, false, errControl
		}
		fragments = 0
	case ws.OpContinuation:
		if fragments < 0 {
			return f, false, errContinuation
		}
	case ws.OpText, ws.OpBinary:
		switch {
		case fragments >= 0:
			return f, false, errInterrupted
		case f.op == ws.OpBinary:
			return f, false, errBinary
		}
		fragments = 0
	default:
		return f, false, errOpcode
	}
	f.size = 6
	switch length {
	case 126:
		f.size = 8
		if len(b) < 4 {
			return f, false, nil
		}
		length = uint64(binary.BigEndian.Uint16(b[2:]))
	case 127:
		f.size = 14
		if len(b) < 10 {
			return f, false, nil
		}
		if length = binary.BigEndian.Uint64(b[2:]); length>>63 != 0 {
			return f, false, errLength
		}
	}
	if length > uint64(MaxCommand-fragments) {
		return f, false, errTooBig
	}
	if f.length = int(length); len(b) < f.size {
		return f, false, nil
	}
	copy(f.mask[:], b[f.size-4:])
	return f, true, nil
}

// unmask removes the mask from a payload, in place.
func unmask(b []byte, mask [4]byte) {
	half := uint64(binary.LittleEndian.Uint32(mask[:]))
	word := half<<32 | half
	for len(b) >= 32 {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^word)
		binary.LittleEndian.PutUint64(b[8:], binary.LittleEndian.Uint64(b[8:])^word)
		binary.LittleEndian.PutUint64(b[16:], binary.LittleEndian.Uint64(b[16:])^word)
		binary.LittleEndian.PutUint64(b[24:], binary.LittleEndian.Uint64(b[24:])^word)
		b = b[32:]
	}
	for i := range b {
		b[i] ^= mask[i&3]
	}
}

func closeAnswer(payload []byte) ([]byte, *violation) {
	if len(payload) == 0 {
		return nil, nil
	}
	if len(payload) == 1 {
		return nil, errCloseCode
	}
	switch code := binary.BigEndian.Uint16(payload); {
	case code >= 3000 && code <= 4999:
	case code >= 1000 && code <= 1003, code >= 1007 && code <= 1014:
	default:
		return nil, errCloseCode
	}
	if !utf8.Valid(payload[2:]) {
		return nil, errNotUTF8
	}
	return payload[:2], nil
}

// maxHeader is the longest header of a frame to the client, in bytes.
const maxHeader = 10

func appendHeader(b []byte, op ws.OpCode, length int) []byte {
	b = append(b, 0x80|byte(op))
	switch {
	case length <= 125:
		return append(b, byte(length))
	case length <= 0xffff:
		return binary.BigEndian.AppendUint16(append(b, 126), uint16(length))
	default:
		return binary.BigEndian.AppendUint64(append(b, 127), uint64(length))
	}
}
