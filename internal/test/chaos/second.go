package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"leasehold/internal/boottime"
	"leasehold/lease"
	"leasehold/lease/natskv"
)

// second is a launcher with the id of another one, on a host of its own. All that it says to NATS
// goes through a relay of the harness, which sees what it writes.
type second struct {
	*process
	*sidecar
	disk  *disk
	store *store
	// listener is where the relay is.
	listener net.Listener
	history  *History

	mu sync.Mutex
	of string // the launcher whose id it has
}

func newSecond(h *harness) (*second, error) {
	p, err := h.net.endpoint("second", 2, len(h.hosts)+1)
	if err != nil {
		return nil, err
	}
	// The servers tell it where all of them are.
	if _, err := h.net.cut(p, h.store.endpoints()...); err != nil {
		return nil, err
	}
	s := &second{store: h.store, history: h.history}
	if s.disk, err = newDisk(true, filepath.Join(h.dir, p.name)); err != nil {
		return nil, err
	}
	if s.listener, err = net.Listen("tcp", net.JoinHostPort(h.net.harness, "0")); err != nil {
		return nil, fmt.Errorf("relay of the second launcher: %w", err)
	}
	files, err := newLauncherFiles(h.dir)
	if err != nil {
		return nil, err
	}
	l := newLauncherPlan(p, s.disk.path, "", "nats://"+s.listener.Addr().String())
	s.sidecar = newSidecar(l.base, callersToken)
	s.process = newProcess(p.name, filepath.Join(h.LogDir, p.name+".log"), func() []string {
		now := l
		now.id = s.id()
		return p.command(files.command(h.Config, h.snapshots, now)...)
	})
	s.env = files.environment()
	return s, nil
}

func (s *second) id() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of
}

// relay passes on what connections say, until ctx ends.
func (s *second) relay(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() {
		<-ctx.Done()
		s.listener.Close()
	})
	for {
		client, err := s.listener.Accept()
		if err != nil {
			break
		}
		all.Go(func() { s.pass(ctx, client) })
	}
	all.Wait()
}

// pass connects a connection with a node that can be reached, if there is one.
func (s *second) pass(ctx context.Context, client net.Conn) {
	defer client.Close()
	for _, n := range s.store.nodes {
		server, err := net.DialTimeout("tcp", net.JoinHostPort(n.endpoint.ip, strconv.Itoa(clientPort)), time.Second)
		if err != nil {
			continue
		}
		stop := context.AfterFunc(ctx, func() { client.Close(); server.Close() })
		defer stop()
		var back sync.WaitGroup
		back.Go(func() {
			_, _ = io.Copy(client, server) // until either ends
			client.Close()
		})
		_ = s.listen(bufio.NewReader(client), server) // until either ends
		server.Close()
		back.Wait()
		return
	}
}

// listen passes on what a client of NATS says, and records what it writes of leases before it is
// written.
func (s *second) listen(client *bufio.Reader, server io.Writer) error {
	for {
		line, err := client.ReadString('\n')
		if err != nil {
			return err
		}
		subject, size := published(line)
		switch {
		case subject == hostSubject(s.id()):
			s.history.Add(Entry{Kind: SecondOpened, Launcher: s.id()})
		case strings.HasPrefix(subject, recordSubjects):
			s.history.Add(Entry{Kind: SecondWrote, Launcher: s.id(), Text: subject})
		}
		if _, err := io.WriteString(server, line); err != nil {
			return err
		}
		if _, err := io.CopyN(server, client, size); err != nil {
			return err
		}
	}
}

// published is what a line of a client publishes to, and the length of what follows the line;
// none if it does not publish.
func published(line string) (subject string, size int64) {
	f := strings.Fields(line)
	if len(f) < 3 || f[0] != "PUB" && f[0] != "HPUB" {
		return "", 0
	}
	size, _ = strconv.ParseInt(f[len(f)-1], 10, 64) // the server refuses what is no number
	return f[1], size + int64(len("\r\n"))
}

// recordSubjects begin the subjects of the leases' records. Events are not looked at: whoever sees
// that one is missing on the stream publishes it, and a second time is a violation of its own.
const recordSubjects = "$KV." + natskv.Bucket + "."

func hostSubject(launcher string) string { return "$KV." + natskv.Hosts + "." + lease.Key(launcher) }

// watchFirst records each renewal of the launcher that really has the id, until ctx ends.
func (s *second) watchFirst(ctx context.Context) {
	for last := uint64(0); ctx.Err() == nil; sleep(ctx, 100*time.Millisecond) {
		nc, js, err := s.store.connect(ctx)
		if err != nil {
			continue
		}
		for ctx.Err() == nil {
			p, err := presenceOf(ctx, js, s.id())
			if err != nil {
				break
			}
			if p.Revision != last && !p.Presence.Closed {
				last = p.Revision
				s.history.Add(Entry{Kind: Renewed, Launcher: s.id()})
			}
			sleep(ctx, 100*time.Millisecond)
		}
		nc.Close()
	}
}

func presenceOf(ctx context.Context, js jetstream.JetStream, launcher string) (p lease.PresenceEntry, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	kv, err := js.KeyValue(ctx, natskv.Hosts)
	if err != nil {
		return p, err
	}
	e, err := kv.Get(ctx, lease.Key(launcher))
	if err != nil {
		return p, err
	}
	p.Revision = e.Revision()
	return p, json.Unmarshal(e.Value(), &p.Presence)
}

// sameID starts a launcher with the id of another one, which has nothing else of it, as a unit file
// that was copied does.
func (h *harness) sameID(ctx context.Context, rnd *rand.Rand) error {
	return h.startSecond(ctx, rnd, SameID, func(*host) error { return nil })
}

// copyDir starts a copy of a launcher: its data directory and its profiles, as they are while it
// runs.
func (h *harness) copyDir(ctx context.Context, rnd *rand.Rand) error {
	return h.startSecond(ctx, rnd, CopiedDir, func(host *host) error {
		for _, dir := range []string{host.serves.dataDir, host.serves.profilesDir} {
			to := filepath.Join(h.second.disk.path, "d")
			if dir == host.serves.profilesDir {
				to = filepath.Join(h.second.disk.path, "profiles")
			}
			_ = exec.Command("cp", "-a", dir, to).Run() // files come and go meanwhile
			if _, err := os.Stat(to); err != nil {
				return fmt.Errorf("copy of %s: %w", dir, err)
			}
		}
		return nil
	})
}

// startSecond has a second launcher under the id of one for a while.
func (h *harness) startSecond(ctx context.Context, rnd *rand.Rand, kind string, prepare func(*host) error) error {
	s, of := h.second, h.anyHost(rnd)
	s.mu.Lock()
	s.of = of.name
	s.mu.Unlock()
	defer func() { _ = s.clear() }() // the next one finds what is left
	if err := errors.Join(s.clear(), prepare(of)); err != nil {
		return err
	}
	stop := h.operate(ctx, s.watchFirst)
	defer stop()
	h.log(kind, of.name)
	if err := s.start(); err != nil {
		return err
	}
	if err := s.answers(ctx); err != nil {
		return errors.Join(err, s.kill())
	}
	sleep(ctx, 2*h.long(rnd)) // so that it has looked at all profiles
	if rnd.IntN(2) == 0 {
		return s.kill()
	}
	if err := s.drain(drainTime); err != nil {
		h.broken(NotDrained, "", "%v", err)
	}
	return nil
}

// clear removes what it has on its disk.
func (s *second) clear() error {
	all, err := filepath.Glob(filepath.Join(s.disk.path, "*"))
	for _, path := range all {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

// aliveFor is how long before a second launcher takes an id the first one may have been seen alive:
// less than the shortest time for which it has to wait.
const aliveFor = 2 * time.Second

// checkSecond checks that a second launcher under an id writes nothing while the first one lives.
func (c *checker) checkSecond(history []Entry) {
	var alive boottime.Instant // when the first one was seen alive last
	var begun, opened Entry    // of the second one
	for _, e := range history {
		switch {
		case e.Kind == Fault && (e.Text == SameID || e.Text == CopiedDir):
			alive, begun, opened = 0, e, Entry{}
		case e.Kind == Renewed && opened.At == 0:
			alive = e.At
		case e.Kind == SecondOpened && opened.At == 0:
			opened = e
			if alive != 0 && e.At.Sub(alive) < aliveFor {
				c.add(SecondWriter, "", fmt.Sprintf("the second launcher %s takes the id %v after the first one was seen alive", e.Launcher, e.At.Sub(alive)), begun, e)
			}
		case e.Kind == SecondWrote && opened.At == 0:
			c.add(SecondWriter, "", fmt.Sprintf("the second launcher %s writes %s, and has not taken the id", e.Launcher, e.Text), begun, e)
		}
	}
}
