package natskv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

const (
	// askTime is how long one server may take to be reached, and to say which store it has.
	askTime = 2 * time.Second
	// serverDialTime is how long the launcher's own connection waits for a server.
	serverDialTime = 5 * time.Second
	// checkEvery is the time between two checks; doubtEvery, while the servers are not one store.
	checkEvery, doubtEvery = time.Minute, 5 * time.Second
)

// Server is what one NATS server says about itself and about the store that it has.
type Server struct {
	// URL is where it was asked, without credentials; Address is the address behind it.
	URL, Address string
	// ID changes with each start of the server. Cluster is empty for a server that is in none.
	ID, Name, Version, Cluster string
	// Told says that its JetStream has answered. Made is then when the bucket of the leases was
	// made; zero: it has none.
	Told bool
	Made time.Time
}

func (s Server) String() string {
	parts := []string{"server " + s.Name, "in no cluster"}
	if s.Cluster != "" {
		parts[1] = "in cluster " + s.Cluster
	}
	switch {
	case !s.Told:
		parts = append(parts, "its JetStream does not answer")
	case s.Made.IsZero():
		parts = append(parts, "without leases")
	default:
		parts = append(parts, "with leases since "+s.Made.UTC().Format(time.RFC3339Nano))
	}
	return s.URL + " (" + strings.Join(parts, ", ") + ")"
}

// differ tells whether two servers, which were both just asked, are known to have different
// stores. A server that did not answer differs from none.
func differ(a, b Server) bool {
	switch {
	case a.ID == b.ID:
		return false
	case a.Cluster == "" && b.Cluster == "":
		return true // even if one has a copy of the other's files
	}
	return a.Told && b.Told && !a.Made.Equal(b.Made)
}

// isStill tells whether a server, which was just asked, is known to have the store that another
// one had when it could still be asked. The bucket of a cluster may have been made anew since.
func isStill(now, before Server) bool {
	return now.ID == before.ID || now.Cluster != "" && now.Cluster == before.Cluster ||
		now.Told && before.Told && !now.Made.IsZero() && now.Made.Equal(before.Made)
}

// areOne says which of the servers are not one store, or too old to keep it; nil: nothing speaks
// against them. All were just asked.
func areOne(servers []Server) error {
	var errs []error
	for i, s := range servers {
		if err := checkVersion(s.Version); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s, err))
		}
		if i > 0 && differ(servers[0], s) {
			errs = append(errs, notOne(servers[0], s))
		}
	}
	return errors.Join(errs...)
}

func notOne(a, b Server) error {
	return fmt.Errorf("%s and %s are not one store, so that a profile could be granted in each: "+
		"want the servers of one cluster, with one account, in --nats-url: join them, or name only those that belong together", a, b)
}

// ServersOptions are what Servers work with.
type ServersOptions struct {
	// URL is that of --nats-url: one, or several with commas between.
	URL string
	// Dial connects to the server of one URL, which must not be tried again, and not be left for
	// another one of its cluster.
	Dial func(ctx context.Context, url string, more ...nats.Option) (*nats.Conn, error)
	Log  zerolog.Logger
}

// Servers makes sure that all servers of a launcher's NATS have one and the same store: that they
// are one cluster, and have one bucket of leases. The launcher's connection goes to any of them,
// and after a loss to another one; if they were two stores, a profile could be granted in each.
//
// A server that cannot be reached is not waited for, and differs from none.
type Servers struct {
	o    ServersOptions
	urls []*url.URL

	mu sync.Mutex
	// home is the server that the launcher's connection was found at last, with its store.
	home Server
	// problem says why the servers are not known to be one store; nil: nothing speaks against it.
	problem error
}

// webPorts are the ports of URLs without one whose scheme is that of a websocket.
var webPorts = map[string]string{"ws": "80", "wss": "443"}

// NewServers returns the servers of the URLs, which have been checked. None is asked yet.
func NewServers(o ServersOptions) *Servers {
	s := &Servers{o: o}
	for one := range strings.SplitSeq(o.URL, ",") {
		if u, err := url.Parse(strings.TrimSpace(one)); err == nil {
			if u.Port() == "" {
				u.Host = net.JoinHostPort(u.Hostname(), cmp.Or(webPorts[u.Scheme], "4222"))
			}
			s.urls = append(s.urls, u)
		}
	}
	return s
}

// Options are what the launcher's connection has to be made with: it does not go to a server that
// is not known to have the store from which it comes.
func (s *Servers) Options() []nats.Option {
	return []nats.Option{nats.SkipHostLookup(), nats.SetCustomDialer(guarded{s})}
}

// Problem returns why nothing may be granted: which server differs from which, or is too old. It
// is nil if nothing is known that speaks against the servers being one store.
func (s *Servers) Problem() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

// Run checks the servers of the launcher's connection at intervals and whenever it is connected
// again, until ctx ends.
func (s *Servers) Run(ctx context.Context, nc *nats.Conn) {
	connected := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(connected)
	for {
		wait := checkEvery
		if s.Problem() != nil {
			wait = doubtEvery
		}
		select {
		case <-connected:
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		s.Check(ctx, nc)
	}
}

// Check asks the server at the other end of the launcher's connection, and all others at the same
// time, and returns why the URLs that did not answer could not be compared.
func (s *Servers) Check(ctx context.Context, nc *nats.Conn) (unasked []error) {
	address := nc.ConnectedAddr()
	if address == "" { // it is checked as soon as it is connected
		return nil
	}
	here := askServer(ctx, nc)
	others, unasked := s.askOthers(ctx, address)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil || here.Address != address {
		return unasked
	}
	if !here.Told && isStill(here, s.home) {
		here.Told, here.Made = s.home.Told, s.home.Made
	}
	s.home = here
	s.set(areOne(append([]Server{here}, others...)))
	return unasked
}

// set takes in a result, and logs what is new. The caller has locked the mutex.
func (s *Servers) set(problem error) {
	switch {
	case problem != nil && (s.problem == nil || s.problem.Error() != problem.Error()):
		s.o.Log.Error().Err(problem).Msg("the NATS servers cannot be trusted with leases: nothing is granted")
	case problem == nil && s.problem != nil:
		s.o.Log.Info().Msg("the NATS servers are one store again")
	}
	s.problem = problem
}

// askOthers asks the servers of all URLs at the same time, but not the one at the address.
func (s *Servers) askOthers(ctx context.Context, but string) (found []Server, unasked []error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	type answer struct {
		found []Server
		err   error
	}
	answers := make([]answer, len(s.urls))
	var asking sync.WaitGroup
	for i, u := range s.urls {
		asking.Go(func() {
			answers[i].found, answers[i].err = s.askAll(ctx, u, but)
		})
	}
	asking.Wait()
	for i, a := range answers {
		found = append(found, a.found...)
		if a.err != nil {
			unasked = append(unasked, fmt.Errorf("%s was not compared with the others: %w", shownURL(s.urls[i]), a.err))
		}
	}
	return found, unasked
}

// askAll asks the servers at all addresses of a URL but one, at the same time. The error says why
// none of them answered.
func (s *Servers) askAll(ctx context.Context, u *url.URL, but string) (found []Server, err error) {
	addresses, err := addressesOf(ctx, u.Host)
	answers, errs := make([]Server, len(addresses)), make([]error, len(addresses))
	var asking sync.WaitGroup
	for i, at := range addresses {
		if at != but {
			asking.Go(func() { answers[i], errs[i] = s.askAt(ctx, u, at) })
		}
	}
	asking.Wait()
	for _, one := range answers {
		if one.ID != "" {
			found = append(found, one)
		}
	}
	if len(found) > 0 || slices.Contains(addresses, but) {
		return found, nil
	}
	return nil, errors.Join(append(errs, err)...)
}

// askAt asks the server at one address of the URL, over a connection of its own.
func (s *Servers) askAt(ctx context.Context, u *url.URL, address string) (Server, error) {
	nc, err := s.o.Dial(ctx, u.String(), nats.SkipHostLookup(), nats.SetCustomDialer(fixed{ctx, address}))
	if err != nil {
		return Server{}, err
	}
	defer nc.Close()
	return askServer(ctx, nc), nil
}

// askServer asks the server at the other end of a connection.
func askServer(ctx context.Context, nc *nats.Conn) Server {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	s := Server{
		Address: nc.ConnectedAddr(), ID: nc.ConnectedServerId(), Name: nc.ConnectedServerName(),
		Version: nc.ConnectedServerVersion(), Cluster: nc.ConnectedClusterName(),
	}
	if u, err := url.Parse(nc.ConnectedUrl()); err == nil {
		s.URL = shownURL(u)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return s
	}
	stream, err := js.Stream(ctx, leasesConfig().Name)
	switch {
	case err == nil:
		s.Told, s.Made = true, stream.CachedInfo().Created
	case errors.Is(err, jetstream.ErrStreamNotFound):
		s.Told = true
	}
	return s
}

// guarded is the dialer of the launcher's connection.
type guarded struct{ s *Servers }

// Dial connects to a server, unless another store is there than the one that the connection had.
func (g guarded) Dial(_, host string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), serverDialTime)
	defer cancel()
	addresses, err := addressesOf(ctx, host)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, at := range addresses {
		if err := g.s.mayGo(ctx, host, at); err != nil {
			errs = append(errs, err)
			continue
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// mayGo refuses an address where another store is, or may be. A server that was started again at
// the address from which the connection comes is the same one, whatever it has lost.
func (s *Servers) mayGo(ctx context.Context, host, address string) error {
	s.mu.Lock()
	home := s.home
	s.mu.Unlock()
	if home.ID == "" || home.Address == address {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	there, err := s.askAt(asking, s.urlOf(host), address)
	if err != nil {
		return err
	}
	if isStill(there, home) {
		return nil
	}
	err = notOne(home, there)
	if there.Told {
		s.mu.Lock()
		s.set(err)
		s.mu.Unlock()
	}
	return err
}

// urlOf is the URL with the host. One of which only the servers have told is like the first.
func (s *Servers) urlOf(host string) *url.URL {
	for _, u := range s.urls {
		if u.Host == host {
			return u
		}
	}
	u := *s.urls[0]
	u.Host = host
	return &u
}

// fixed is a dialer that goes to one address, whatever the URL says.
type fixed struct {
	ctx     context.Context
	address string
}

// Dial connects to the address.
func (f fixed) Dial(_, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(f.ctx, "tcp", f.address)
}

// addressesOf returns the addresses of a host: behind one name there may be several servers.
func addressesOf(ctx context.Context, host string) ([]string, error) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil {
		return nil, err
	}
	addresses := make([]string, len(ips))
	for i, ip := range ips {
		addresses[i] = net.JoinHostPort(ip, port)
	}
	return addresses, nil
}

// shownURL is the URL for people, without credentials.
func shownURL(u *url.URL) string { return u.Scheme + "://" + u.Host }
