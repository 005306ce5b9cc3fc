//go:build !linux

package peer

import "errors"

// ask fails: only Linux is asked. The sidecar runs nowhere else.
func ask([]byte) ([]byte, error) { return nil, errors.ErrUnsupported }
