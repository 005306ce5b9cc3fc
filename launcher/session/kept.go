package session

import (
	"sync"

	"leasehold/launcher/sessionfile"
)

// kept is a session's file: what the next launcher, and callers after the session's end, can
// know of the session. It also has the session's capability, of which the file has only the
// hash. Its mu is the last mutex: nothing else is locked under it.
type kept struct {
	dir       sessionfile.Dir
	ephemeral bool // no other launcher goes on with it, and nothing is on disk
	life      *life

	// saving is held while the file is written: of two saves at once the later one has to be the
	// last one on disk. It comes before mu.
	saving sync.Mutex

	mu         sync.Mutex
	file       sessionfile.File
	capability string // empty: that of a session of an earlier launcher, not shown yet
}

// newKept makes the file of a session that begins. It is not on disk before save.
func newKept(h *Registry, t *terms, l *life, capability string, proxy *sessionfile.ProxyUse) *kept {
	m, begun := t.manifest, l.known().startedAt
	return &kept{
		dir: h.o.Files, ephemeral: t.ephemeral, life: l, capability: capability,
		file: sessionfile.File{
			SessionID: t.id, CapabilityHash: sessionfile.HashCapability(capability), Token: t.token,
			Manifest: m, Principal: m.Opener.Name, OpenerUID: m.Opener.UID, OneShot: m.OneShot, ByHand: m.ByHand, AcquiredAt: begun.UTC(), Begun: h.o.Clock(), SeenAt: begun.UTC(), Proxy: proxy,
		},
	}
}

// get is the file as it is in memory.
func (k *kept) get() sessionfile.File {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.file
}

func (k *kept) change(how func(*sessionfile.File)) sessionfile.File {
	k.mu.Lock()
	defer k.mu.Unlock()
	how(&k.file)
	return k.file
}

// save writes the file, synced.
func (k *kept) save() error {
	if k.ephemeral {
		return nil
	}
	k.saving.Lock()
	defer k.saving.Unlock()
	seen := k.life.known().seenAt
	f := k.get()
	f.SeenAt = seen.UTC()
	return k.dir.Save(f)
}

// shown is the capability, if it is known.
func (k *kept) shown() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.capability
}

// learn keeps the capability that a worker showed for a session of an earlier launcher: on disk
// there is only its hash.
func (k *kept) learn(capability string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.capability == "" && sessionfile.HashCapability(capability) == k.file.CapabilityHash {
		k.capability = capability
	}
}
