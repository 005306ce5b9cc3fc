package profiledir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"leasehold/internal/chromever"
	"leasehold/internal/foreign"
	"leasehold/internal/procfs"
)

// Answer is the answer to one question. What cannot be proved is Unknown, never Yes or No.
type Answer string

// The answers.
const (
	Yes     Answer = "yes"
	No      Answer = "no"
	Unknown Answer = "unknown"
)

// Fact is an answer and how it was found.
type Fact struct {
	Answer Answer `json:"answer"`
	How    string `json:"how"`
}

func fact(a Answer, how string, args ...any) Fact { return Fact{a, fmt.Sprintf(how, args...)} }

// Inspection is what this host can tell about a profile directory. An inspection changes
// nothing in the directory.
type Inspection struct {
	DirectoryPresent Fact `json:"directory_present"`
	// Locked is yes while a process other than this launcher holds the lock. While
	// this launcher holds it, the kernel does not tell whether a Chrome shares it:
	// Locked has the answer of InUse then.
	Locked Fact `json:"locked"`
	// InUse is yes while live processes, those in Processes, name the directory.
	InUse     Fact      `json:"in_use"`
	Processes []Process `json:"processes,omitempty"`
	Singleton Singleton `json:"singleton"`
	// ClosedCleanly is yes if Chrome has noted an orderly exit and removed its own
	// lock.
	ClosedCleanly Fact `json:"closed_cleanly"`
	// ExitType is what Chrome noted in Preferences: Normal, Crashed, or
	// SessionEnded (by SIGTERM; the last cookies may be lost). It is empty if there
	// is no such note.
	ExitType string `json:"exit_type,omitempty"`
	// SessionStatePresent is yes if the folder that is opened has a cookie database.
	SessionStatePresent Fact `json:"session_state_present"`
	// NetworkFilesystem is yes if another host may use the directory too.
	NetworkFilesystem Fact `json:"network_filesystem"`

	unseen error // why Processes is not known
}

// Users are the living processes that name the directory, as Processes returned them. The error
// says why they are not known.
func (in Inspection) Users() ([]Process, error) { return in.Processes, in.unseen }

// Inspect gathers the facts about a profile. A fact that cannot be found out is
// Unknown. An error is returned for an id or a directory that Path refuses.
func (r *Root) Inspect(id string) (Inspection, error) {
	path, err := r.Path(id)
	if errors.Is(err, ErrNoProfile) {
		return r.inspectMissing(id), nil
	}
	if err != nil {
		return Inspection{}, err
	}
	in := Inspection{DirectoryPresent: fact(Yes, "%s", path)}
	in.Processes, in.unseen = Processes(path)
	in.InUse = inUse(in.Processes, in.unseen)
	in.Locked = r.lockedByOthers(id, in.InUse)
	in.Singleton = r.singleton(id, path, in.InUse, in.Processes)
	if folder, err := Folder(path); err != nil {
		in.ClosedCleanly = fact(Unknown, "%v", err)
		in.SessionStatePresent = in.ClosedCleanly
	} else {
		in.ClosedCleanly, in.ExitType = closedCleanly(path, folder, in.Singleton.Present)
		in.SessionStatePresent = sessionState(path, folder)
	}
	in.NetworkFilesystem = NetworkFilesystem(path)
	return in, nil
}

func (r *Root) inspectMissing(id string) Inspection {
	none := fact(Unknown, "there is no profile directory")
	in := Inspection{
		DirectoryPresent: fact(No, "%s does not exist", filepath.Join(r.dir, id)),
		Singleton:        Singleton{Present: none, SameHost: none, OwnerAlive: none},
		ClosedCleanly:    none, SessionStatePresent: none,
		NetworkFilesystem: NetworkFilesystem(r.dir),
	}
	in.Processes, in.unseen = Processes(filepath.Join(r.dir, id))
	in.InUse = inUse(in.Processes, in.unseen)
	in.Locked = r.lockedByOthers(id, in.InUse)
	return in
}

// inUse tells whether processes name the directory, from what Processes returned.
func inUse(ps []Process, err error) Fact {
	switch {
	case err != nil:
		return fact(Unknown, "%v", err)
	case len(ps) > 0:
		return fact(Yes, "%s", pids(ps))
	}
	// If process 1 is hidden, the processes of other users are hidden too.
	if _, err := procfs.Read(1); err != nil {
		return fact(Unknown, "no process names the directory, but this host hides those of other users")
	}
	return fact(No, "no process names the directory")
}

func (r *Root) lockedByOthers(id string, inUse Fact) Fact {
	var held bool
	var err error
	switch launcher, shared := r.parts(id); {
	case shared:
		return fact(inUse.Answer, "this launcher has the lock; %s", inUse.How)
	case launcher:
		held, err = probe(r.file(id, sharedPart))
	default:
		held, err = r.Locked(id)
	}
	switch {
	case err != nil:
		return fact(Unknown, "%v", err)
	case held:
		return fact(Yes, "the kernel lock is taken")
	default:
		return fact(No, "the kernel lock is free")
	}
}

// closedCleanly reads both of Chrome's notes, since neither is always right: after a SIGTERM
// the one in Variations says clean, and after a crash in the first ten seconds the one in
// Preferences says Normal.
func closedCleanly(path, folder string, singleton Fact) (Fact, string) {
	exited, exitedErr := readNote(path, "Variations", parseVariations)
	exit, exitErr := readNote(path, filepath.Join(folder, "Preferences"), parsePreferences)
	switch {
	case singleton.Answer == Yes:
		return fact(No, "%s", singleton.How), exit
	case exitedErr == nil && !exited:
		return fact(No, "Variations says that Chrome did not exit cleanly"), exit
	case exitErr == nil && exit != "Normal":
		return fact(No, "Preferences has exit_type %q", exit), exit
	case exitedErr != nil:
		return fact(Unknown, "%v", exitedErr), exit
	case exitErr != nil:
		return fact(Unknown, "%v", exitErr), exit
	case singleton.Answer != No:
		return fact(Unknown, "%s", singleton.How), exit
	default:
		return fact(Yes, "Variations and Preferences say so, and SingletonLock is gone"), exit
	}
}

// maxNote bounds how much of one of Chrome's files is read.
const maxNote = 64 << 20

func readNote[T any](dir, name string, parse func([]byte) (T, error)) (T, error) {
	b, err := foreign.Read(dir, name, maxNote)
	if err != nil {
		var none T
		return none, err
	}
	note, err := parse(b)
	if err != nil {
		return note, fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return note, nil
}

// parseVariations reads whether Chrome noted an orderly exit. Chrome writes false
// about 45 ms after its start, and true when it exits in order.
func parseVariations(b []byte) (bool, error) {
	var v struct {
		ExitedCleanly *bool `json:"user_experience_metrics.stability.exited_cleanly"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return false, err
	}
	if v.ExitedCleanly == nil {
		return false, errors.New("there is no exited_cleanly")
	}
	return *v.ExitedCleanly, nil
}

// parsePreferences reads the profile's exit_type.
func parsePreferences(b []byte) (string, error) {
	var v struct {
		Profile struct {
			ExitType *string `json:"exit_type"`
		} `json:"profile"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return "", err
	}
	if v.Profile.ExitType == nil {
		return "", errors.New("there is no exit_type")
	}
	return *v.Profile.ExitType, nil
}

// LastVersion is the version of the Chrome that last used the user-data-dir at path, as that
// Chrome noted it; empty if there is no such note.
func LastVersion(path string) string {
	b, err := foreign.Read(path, "Last Version", 64)
	if err != nil {
		return ""
	}
	return chromever.In(string(b))
}

func sessionState(path, folder string) Fact {
	for _, file := range cookieFiles {
		name := filepath.Join(folder, file)
		fi, err := os.Lstat(filepath.Join(path, name))
		switch {
		case err == nil && fi.Mode().IsRegular() && fi.Size() > 0:
			return fact(Yes, "%s has %d bytes", name, fi.Size())
		case err == nil:
			return fact(No, "%s is empty", name)
		case !errors.Is(err, fs.ErrNotExist):
			return fact(Unknown, "%v", err)
		}
	}
	return fact(No, "there is no cookie database in %s", folder)
}

// filesystems are the types that statfs(2) returns, and whether another host may have the same
// files. FUSE counts as shared, since it hides where the files are.
var filesystems = map[int64]struct {
	name   string
	shared bool
}{
	unix.NFS_SUPER_MAGIC: {"nfs", true}, unix.SMB_SUPER_MAGIC: {"smb", true}, unix.CIFS_SUPER_MAGIC: {"cifs", true},
	unix.SMB2_SUPER_MAGIC: {"smb2", true}, unix.FUSE_SUPER_MAGIC: {"fuse", true}, unix.V9FS_MAGIC: {"9p", true},
	unix.CEPH_SUPER_MAGIC: {"ceph", true}, unix.AFS_SUPER_MAGIC: {"afs", true}, unix.AFS_FS_MAGIC: {"afs", true},
	unix.CODA_SUPER_MAGIC: {"coda", true}, unix.NCP_SUPER_MAGIC: {"ncp", true}, unix.OCFS2_SUPER_MAGIC: {"ocfs2", true},
	0x01161970: {"gfs2", true}, 0x0BD00BD0: {"lustre", true}, 0x47504653: {"gpfs", true}, 0x786F4256: {"vboxsf", true},

	unix.EXT4_SUPER_MAGIC: {"ext2/3/4", false}, unix.XFS_SUPER_MAGIC: {"xfs", false}, unix.BTRFS_SUPER_MAGIC: {"btrfs", false},
	unix.TMPFS_MAGIC: {"tmpfs", false}, unix.OVERLAYFS_SUPER_MAGIC: {"overlayfs", false}, unix.F2FS_SUPER_MAGIC: {"f2fs", false},
	unix.RAMFS_MAGIC: {"ramfs", false}, unix.REISERFS_SUPER_MAGIC: {"reiserfs", false}, 0x2FC12FC1: {"zfs", false},
	0xCA451A4E: {"bcachefs", false}, 0x3153464A: {"jfs", false},
}

// NetworkFilesystem tells whether the path is on a file system that another host may use too.
// This host's lock and floor prove nothing about such a host. The answer for a type that is not
// in the table is Unknown.
func NetworkFilesystem(path string) Fact {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return fact(Unknown, "file system of %s: %v", path, err)
	}
	// The kernel's field is signed on some architectures and has 32 bits.
	magic := int64(uint32(st.Type))
	known, ok := filesystems[magic]
	switch {
	case !ok:
		return fact(Unknown, "file system type 0x%x is not known", magic)
	case known.shared:
		return fact(Yes, "%s", known.name)
	default:
		return fact(No, "%s", known.name)
	}
}
