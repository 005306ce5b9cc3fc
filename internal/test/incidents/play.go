package incidents

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"leasehold/launcher/api"
)

// worker is the client of an incident's worker.
type worker interface {
	// do performs an action that concerns the browser.
	do(ctx context.Context, s *site, a Action) error
	// kill ends the worker like a SIGKILL.
	kill()
}

// The programs are workers that run as processes of their own, with the packages of
// internal/test/clients. Each is a script of the folder incidents there.
const (
	playwright = "playwright"
	puppeteer  = "puppeteer"
	cdp        = "cdp" // chrome-remote-interface
	selenium   = "selenium"
)

var programs = []string{playwright, puppeteer, cdp, selenium}

// keepsHostAndPort tells whether a worker's client forgets the path of a URL, so that its
// session needs a port of its own.
func keepsHostAndPort(worker string) bool { return worker == cdp || worker == selenium }

// door is where a worker gets to a browser.
type door struct {
	socket   string // URL of the browser's websocket
	hostPort string // of the browser's own port, for workers that want that
	bare     bool   // no sidecar stands before the browser, so that it has no Lease domain
}

// enter gets an incident's worker a session of the sidecar.
func enter(ctx context.Context, sidecar string, i Incident) (door, error) {
	m := api.Manifest{
		WorkerID: "worker-7", TaskID: "task_1", ProfileID: i.Name,
		Resumable: i.Manifest.Resumable, ExpectedDomains: i.Manifest.ExpectedDomains,
	}
	if !keepsHostAndPort(i.Worker) {
		return door{socket: strings.Replace(sidecar, "http", "ws", 1) + "/devtools/browser/" + url.PathEscape(i.Name) + "?" + m.Query().Encode()}, nil
	}
	m.DedicatedPort = true
	var session struct {
		Dedicated string `json:"dedicated_url"`
	}
	err := call(ctx, http.MethodPost, sidecar+"/v1/sessions", m, &session)
	return door{hostPort: strings.TrimPrefix(session.Dedicated, "http://")}, err
}

// played is what is left when a script has ended.
type played struct {
	worker worker
	// checkpointed is how many effects the account had at the last checkpoint, which was
	// idempotent or not.
	checkpointed int
	idempotent   bool
}

// play performs the script of an incident. The worker is left as it is, unless there is
// an error.
func play(ctx context.Context, d door, s *site, i Incident) (p played, err error) {
	if i.Worker == "" {
		p.worker, err = connect(ctx, d)
	} else {
		p.worker, err = start(ctx, i.Worker, d)
	}
	if err != nil {
		return p, err
	}
	for n, a := range i.Script {
		if err := perform(ctx, s, p.worker, a); err != nil {
			p.worker.kill()
			return p, fmt.Errorf("action %d: %w", n+1, err)
		}
		if a.Checkpoint != nil {
			truth, err := s.truth()
			if err != nil {
				p.worker.kill()
				return p, err
			}
			p.checkpointed, p.idempotent = len(truth), a.Checkpoint.Idempotent != nil
		}
	}
	return p, nil
}

// perform performs one action: those that concern the site itself, and by the worker the
// others.
func perform(ctx context.Context, s *site, w worker, a Action) error {
	switch {
	case a.Hold != "":
		s.hold(a.Hold)
		return nil
	case a.Cut != "":
		s.cutOff(a.Cut)
		return nil
	case a.Idle != 0:
		select {
		case <-time.After(time.Duration(a.Idle) * time.Millisecond):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	case a.Arrives != "":
		request, times, err := arrival(a.Arrives)
		if err != nil {
			return err
		}
		return s.await(ctx, request, times)
	}
	return w.do(ctx, s, a)
}

// DryRun performs the script of an incident on a bare browser, kills the worker, waits a
// moment, and returns what the site recorded. Nothing is decided.
func DryRun(ctx context.Context, socket, hostPort string, i Incident) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, incidentTimeout)
	defer cancel()
	s, err := newSite(i)
	if err != nil {
		return nil, err
	}
	defer s.close()
	d := door{socket: socket, hostPort: hostPort, bare: true}
	if len(s.signIn()) > 0 {
		w, err := connect(ctx, d)
		if err != nil {
			return nil, err
		}
		err = signInBy(ctx, w, s)
		w.kill()
		if err != nil {
			return nil, err
		}
		if s.app == nil {
			s.begin(i.Answers)
		}
	}
	p, err := play(ctx, d, s, i)
	if err != nil {
		return nil, err
	}
	p.worker.kill()
	time.Sleep(300 * time.Millisecond) // what was under way arrives
	var all []string
	safe := i.Safe()
	truth, err := s.truth()
	if err != nil {
		return nil, err
	}
	for n, e := range truth {
		all = append(all, e.What)
		safe = safe && i.Manifest.Resumable && (n < p.checkpointed || p.idempotent && e.Again)
	}
	if i.Safe() && !safe {
		return all, errors.New("the site's books contradict the expectation: " + strings.Join(all, ", "))
	}
	return slices.Clip(all), nil
}
