// Package confine runs programs under Landlock, the kernel's own limits on the files, the
// network and the processes that a program may touch. A program that was started in this way
// cannot lift its limits, nor can anything that it starts.
//
// Landlock restricts the process that asks for it. So a program is started through a copy of
// this binary, which restricts itself and then becomes the program: see Start and Main.
package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Access is what a program may do with a file, or with a directory and everything below it. The
// values can be combined.
type Access uint8

const (
	Read    Access = 1 << iota // read files
	List                       // list directories
	Execute                    // run files as programs
	Write                      // write and truncate files
	Create                     // make, move and remove files and directories
	Link                       // make symlinks, sockets and named pipes
	Control                    // control devices (ioctl)
)

// Often used combinations.
const (
	ReadOnly  = Read | List
	ReadWrite = ReadOnly | Write | Create
	Device    = Read | List | Write | Control
)

// rights are Landlock's names for each Access.
var rights = map[Access]landlock.AccessFSSet{
	Read:    ll.AccessFSReadFile,
	List:    ll.AccessFSReadDir,
	Execute: ll.AccessFSExecute,
	Write:   ll.AccessFSWriteFile | ll.AccessFSTruncate,
	Create:  ll.AccessFSMakeReg | ll.AccessFSMakeDir | ll.AccessFSRemoveFile | ll.AccessFSRemoveDir | ll.AccessFSRefer,
	Link:    ll.AccessFSMakeSym | ll.AccessFSMakeSock | ll.AccessFSMakeFifo,
	Control: ll.AccessFSIoctlDev,
}

// ofFiles are the rights that a rule for a single file can have.
const ofFiles landlock.AccessFSSet = ll.AccessFSReadFile | ll.AccessFSExecute | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSIoctlDev

func (a Access) rights() landlock.AccessFSSet {
	var all landlock.AccessFSSet
	for one, r := range rights {
		if a&one != 0 {
			all |= r
		}
	}
	return all
}

// Path is a file, or a directory with everything below it, and what a program may do with it.
type Path struct {
	Path   string `json:"path"`
	Access Access `json:"access"`
}

// Rules are everything that a program may do. Looking up a path, and reading the owner and
// length of a file, is always allowed. So is everything between processes, and abstract Unix
// sockets, of programs under the same rules; those of other programs are out of reach.
type Rules struct {
	// Paths may name things that do not exist: they are left out.
	Paths []Path `json:"paths"`
	// Listen allows to bind TCP sockets to ports.
	Listen bool `json:"listen,omitempty"`
	// Ports are the TCP ports, on any host, that may be connected to. Nil means all.
	Ports []uint16 `json:"ports,omitempty"`
	// Sockets allows to connect to abstract Unix sockets of other programs.
	Sockets bool `json:"sockets,omitempty"`
	// Attach lets processes of the same user attach to the program if the kernel would
	// otherwise only allow its ancestors (Yama). Programs that it starts do not inherit it.
	Attach bool `json:"attach,omitempty"`
}

// Kernel is what this kernel can enforce.
type Kernel struct {
	// ABI is the version of Landlock's interface.
	ABI int
}

// leastABI is the first version with which files can be moved between directories, as
// browsers do.
const leastABI = 2

// abis are what each version of Landlock added.
var abis = []struct {
	abi    int
	config landlock.Config
	added  string
}{
	{2, landlock.V2, ""},
	{3, landlock.V3, "truncating files"},
	{4, landlock.V4, "TCP ports"},
	{5, landlock.V5, "the control of devices"},
	{6, landlock.V6, "signals and abstract Unix sockets"},
}

// ErrNone says that the kernel has no Landlock that would do.
var ErrNone = errors.New("this kernel cannot confine programs")

// Probe asks the kernel. The error wraps ErrNone, and says what is missing.
func Probe() (Kernel, error) {
	abi, err := ll.LandlockGetABIVersion()
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return Kernel{}, fmt.Errorf("%w: Landlock is switched off: add landlock to the kernel's parameter lsm=", ErrNone)
	case errors.Is(err, unix.ENOSYS):
		return Kernel{}, fmt.Errorf("%w: it has no Landlock: Linux 5.19 or later has what is needed", ErrNone)
	case err != nil:
		return Kernel{}, fmt.Errorf("%w: Landlock: %w: is the system call refused by a container's filter?", ErrNone, err)
	case abi < leastABI:
		return Kernel{}, fmt.Errorf("%w: its Landlock has ABI %d, want %d (Linux 5.19) or later", ErrNone, abi, leastABI)
	}
	return Kernel{ABI: abi}, nil
}

// Uncovered lists what this kernel's Landlock leaves open although Rules mention it.
func (k Kernel) Uncovered() []string {
	var open []string
	for _, a := range abis {
		if a.abi > k.ABI {
			open = append(open, a.added)
		}
	}
	return open
}

// String describes it in a few words.
func (k Kernel) String() string {
	text := fmt.Sprintf("Landlock ABI %d", k.ABI)
	if open := k.Uncovered(); len(open) > 0 {
		text += ", which does not cover " + strings.Join(open, ", ")
	}
	return text
}

// apply restricts this process, all its threads, and all that it will start.
func (r Rules) apply() error {
	k, err := Probe()
	if err != nil {
		return err
	}
	var config landlock.Config
	for _, a := range abis {
		if a.abi <= k.ABI {
			config = a.config
		}
	}
	if r.Listen {
		config.HandledAccessNet &^= ll.AccessNetBindTCP
	}
	if r.Ports == nil {
		config.HandledAccessNet &^= ll.AccessNetConnectTCP
	}
	if r.Sockets {
		config.Scoped &^= ll.ScopeAbstractUnixSocket
	}
	var rules []landlock.Rule
	for _, p := range r.Paths {
		info, err := os.Stat(p.Path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue // what this user cannot look at is out of reach anyway
		}
		if err != nil {
			return err
		}
		access := p.Access.rights() & config.HandledAccessFS
		if !info.IsDir() {
			access &= ofFiles
		}
		if access != 0 {
			rules = append(rules, landlock.PathAccess(access, p.Path).IgnoreIfMissing())
		}
	}
	if config.HandledAccessNet&ll.AccessNetConnectTCP != 0 {
		for _, port := range r.Ports {
			rules = append(rules, landlock.ConnectTCP(port))
		}
	}
	return config.Restrict(rules...)
}
