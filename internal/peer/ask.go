//go:build linux

package peer

import (
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// sockDiagByFamily is the only kind of question of the kernel's sock_diag interface.
const sockDiagByFamily = 20

func ask(question []byte) ([]byte, error) {
	conn, err := netlink.Dial(unix.NETLINK_INET_DIAG, nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	answers, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: sockDiagByFamily, Flags: netlink.Request},
		Data:   question,
	})
	if err != nil {
		return nil, err
	}
	if len(answers) != 1 {
		return nil, fmt.Errorf("%d answers, want one", len(answers))
	}
	return answers[0].Data, nil
}
