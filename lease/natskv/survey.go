package natskv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"leasehold/lease"
)

// Grade says what a Finding means.
type Grade string

const (
	// Fine: it is as it should be.
	Fine Grade = "ok"
	// Unasked: it could not be found out with the rights of this connection.
	Unasked Grade = "unknown"
	// Unsafe: leases or events can be lost, or cannot be kept at all.
	Unsafe Grade = "unsafe"
)

// Finding is one fact about a NATS server, for people.
type Finding struct {
	// Check names the fact: "version", "limits", "sync", "replicas", "storage", "size", "age" or
	// "clock".
	Check string
	Grade Grade
	// Text says what was found and, unless it is fine, what was expected and what to do.
	Text string
}

const (
	// settingsSubject is where every server of a cluster tells its JetStream settings. It is a
	// subject of the system account; deploy/nats-server.conf allows launchers to ask.
	settingsSubject = "$SYS.REQ.SERVER.PING.JSZ"
	// settingsTime is how long to wait for the first server's answer; furtherTime, how long for
	// each further one after that.
	settingsTime, furtherTime = 5 * time.Second, time.Second
	// safeMajor and safeMinor are the oldest version of which no loss of acknowledged writes is
	// known if every write is synced.
	safeMajor, safeMinor = 2, 14
)

type serverSettings struct {
	Server struct {
		Name    string `json:"name"`
		Version string `json:"ver"`
	} `json:"server"`
	Data struct {
		Disabled bool `json:"disabled"`
		Config   struct {
			SyncAlways   bool          `json:"sync_always"`
			SyncInterval time.Duration `json:"sync_interval"`
		} `json:"config"`
	} `json:"data"`
}

// Survey asks the servers at the other end of a launcher's connection whether leases and events
// are safe there: their version, whether they sync every write, how many copies of the buckets
// and the stream there are, and on what storage. It changes nothing. It leaves out a bucket or
// stream that does not exist yet.
func Survey(ctx context.Context, nc *nats.Conn) []Finding {
	servers, err := askSettings(ctx, nc)
	found := append(versions(nc, servers), syncs(servers, err)...)
	js, err := jetstream.New(nc)
	if err != nil {
		return append(found, Finding{"replicas", Unasked, err.Error()})
	}
	account, err := js.AccountInfo(ctx)
	found = append(found, limits(nc.MaxPayload(), account, err)...)
	for _, name := range []string{leasesConfig().Name, hostsConfig().Name, queueConfig().Name, sitesConfig().Name, Stream, "OBJ_leasehold_evidence"} {
		stream, err := js.Stream(ctx, name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
		case err != nil:
			return append(found, Finding{"replicas", Unsafe, fmt.Sprintf("stream %s: %v: the launcher's user needs $JS.API.STREAM.INFO.%s (docs/nats.md)", name, err, name)})
		default:
			found = append(found, copies(stream.CachedInfo(), nc.ConnectedClusterName() != "")...)
			found = append(found, clocks(stream.CachedInfo(), time.Now())...)
		}
	}
	return found
}

// clocks judges the clock of the server that has the bucket of leases, and whether the event stream
// depends on it. now is this host's time.
func clocks(info *jetstream.StreamInfo, now time.Time) []Finding {
	switch name := info.Config.Name; {
	case name == leasesConfig().Name:
		if now.Sub(info.TimeStamp).Abs() > lease.MaxClockError {
			return []Finding{{"clock", Unsafe, (&lease.ClockError{Wall: now, Other: info.TimeStamp, Witness: "the NATS server"}).Error()}}
		}
		return []Finding{{"clock", Fine, "the server's clock and this host's agree"}}
	case name == Stream && info.Config.MaxAge != 0:
		return []Finding{{"age", Unasked, ages(name, info.Config.MaxAge)}}
	}
	return nil
}

// askSettings returns what each server says. After each answer it waits a moment for another
// one, because the number of servers is not known.
func askSettings(ctx context.Context, nc *nats.Conn) ([]serverSettings, error) {
	next := func(sub *nats.Subscription, limit time.Duration) (*nats.Msg, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return sub.NextMsgWithContext(ctx)
	}
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest(settingsSubject, sub.Subject, nil); err != nil {
		return nil, err
	}
	var all []serverSettings
	for limit := settingsTime; ; limit = furtherTime {
		m, err := next(sub, limit)
		if err == nil && m.Header.Get("Status") == "503" {
			err = nats.ErrNoResponders
		}
		switch {
		case err != nil && len(all) > 0:
			return all, nil
		case err != nil:
			return nil, err
		}
		var one serverSettings
		if err := json.Unmarshal(m.Data, &one); err != nil {
			return nil, fmt.Errorf("answer of a NATS server: %w", err)
		}
		if !one.Data.Disabled {
			all = append(all, one)
		}
	}
}

// versions judges the versions of the servers, or of the connected one if the others are not
// known.
func versions(nc *nats.Conn, servers []serverSettings) []Finding {
	have := map[string]string{}
	for _, s := range servers {
		have[s.Server.Name] = s.Server.Version
	}
	if len(have) == 0 {
		have[nc.ConnectedServerName()] = nc.ConnectedServerVersion()
	}
	var found []Finding
	for name, version := range have {
		var major, minor int
		if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err == nil && (major > safeMajor || major == safeMajor && minor >= safeMinor) {
			found = append(found, Finding{"version", Fine, fmt.Sprintf("server %s is %s", name, version)})
			continue
		}
		found = append(found, Finding{"version", Unsafe, fmt.Sprintf("server %s is %s, want %d.%d or newer: earlier ones can lose acknowledged writes, and cannot keep the subscribers' copy: upgrade it",
			name, version, safeMajor, safeMinor)})
	}
	return found
}

// syncs judges whether the servers sync every write. err is why they could not be asked.
func syncs(servers []serverSettings, err error) []Finding {
	if len(servers) == 0 {
		return []Finding{{"sync", Unasked, fmt.Sprintf("the servers could not be asked whether they sync every write (%v): make sure that each has \"sync_interval: always\" in its jetstream block; without it a power cut loses acknowledged leases. deploy/nats-server.conf lets launchers ask", err)}}
	}
	var found []Finding
	var fine []string
	for _, s := range servers {
		if s.Data.Config.SyncAlways {
			fine = append(fine, s.Server.Name)
			continue
		}
		found = append(found, Finding{"sync", Unsafe, fmt.Sprintf("server %s syncs every %v, want every write: a power cut loses acknowledged leases: set \"sync_interval: always\" in its jetstream block and restart it",
			s.Server.Name, s.Data.Config.SyncInterval)})
	}
	if len(fine) > 0 {
		found = append(found, Finding{"sync", Fine, "every write is synced by " + strings.Join(fine, ", ")})
	}
	return found
}

// leastPayload is the max_payload, in bytes, of the smallest server that launchers can use: the
// least size of a bucket's messages, and their headers. A record that is larger leaves its oldest
// events out.
const leastPayload = minValue + 4<<10

// limits judges the limits of the server and of the launchers' account. err is why the account's
// are not known.
func limits(maxPayload int64, account *jetstream.AccountInfo, err error) []Finding {
	var found []Finding
	refuse := func(format string, args ...any) {
		found = append(found, Finding{"limits", Unsafe, fmt.Sprintf(format, args...)})
	}
	if maxPayload > 0 && maxPayload < leastPayload {
		refuse("the server takes messages of %d bytes at most, want %d or more: long records would be refused: raise its max_payload", maxPayload, leastPayload)
	}
	if err != nil {
		return append(found, Finding{"limits", Unasked, fmt.Sprintf("the limits of the account are not known (%v): its user needs $JS.API.INFO", err)})
	}
	text := []string{fmt.Sprintf("messages of %d bytes", maxPayload)}
	limit := func(name string, used, most int64) {
		if most < 0 {
			return
		}
		text = append(text, fmt.Sprintf("%s %d of %d", name, used, most))
		if used >= most {
			refuse("the account has used its %s: %d of %d: leases, events or evidence are refused: raise the limit at the NATS server", name, used, most)
		}
	}
	tiers := account.Tiers // by number of copies, for accounts whose limits depend on it
	if len(tiers) == 0 {
		tiers = map[string]jetstream.Tier{"": account.Tier}
	}
	for _, tier := range slices.Sorted(maps.Keys(tiers)) {
		t, of := tiers[tier], ""
		if tier != "" {
			of = " of tier " + tier
		}
		limit("bytes of file storage"+of, int64(t.Store), t.Limits.MaxStore)
		limit("streams"+of, int64(t.Streams), int64(t.Limits.MaxStreams))
		limit("consumers"+of, int64(t.Consumers), int64(t.Limits.MaxConsumers))
		if t.Limits.MaxBytesRequired {
			refuse("the account wants max_bytes for each stream%s, and a full bucket of leases would refuse every renewal: take an account that does not want it", of)
		}
	}
	if account.Domain != "" {
		text = append(text, "JetStream domain "+account.Domain)
	}
	if len(found) == 0 {
		found = []Finding{{"limits", Fine, "limits: " + strings.Join(text, ", ")}}
	}
	return found
}

// copies judges one stream. clustered says that the servers are a cluster.
func copies(info *jetstream.StreamInfo, clustered bool) []Finding {
	var found []Finding
	replicas := max(info.Config.Replicas, 1)
	name := info.Config.Name
	if info.Config.Storage != jetstream.FileStorage {
		found = append(found, Finding{"storage", Unsafe, fmt.Sprintf("stream %s is in memory, want file storage: a restart would lose it: make it again on files", name)})
	}
	switch {
	case clustered && replicas < 3:
		found = append(found, Finding{"replicas", Unsafe, fmt.Sprintf("stream %s has %d copies in a cluster, want 3: it is away, or lost, with one server: set its replicas to 3 (nats stream edit)", name, replicas)})
	default:
		found = append(found, Finding{"replicas", Fine, fmt.Sprintf("copies of stream %s: %d", name, replicas)})
	}
	if most := info.Config.MaxMsgSize; name == leasesConfig().Name && most > 0 && most < maxValue {
		found = append(found, Finding{"size", Unasked, fmt.Sprintf("stream %s takes messages of %d bytes, want %d: a profile with long settings and many runs may not fit: set its max_msg_size (nats stream edit --max-msg-size)", name, most, maxValue)})
	}
	if info.Cluster == nil {
		return found
	}
	for _, peer := range info.Cluster.Replicas {
		if peer.Offline {
			found = append(found, Finding{"replicas", Unsafe, fmt.Sprintf("stream %s: its copy on server %s is offline, want all online: start that server", name, peer.Name)})
		}
	}
	return found
}
