package main

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// crowdPage is a page of a site as many are: a table, pictures, styles, and a script that goes on.
var crowdPage = `<!doctype html><title>orders</title><style>td{padding:4px;border:1px solid #ccc}img{width:48px;height:48px}</style>
<h1>Orders</h1><p id=clock></p><table>` + strings.Repeat(`<tr><td><img src="/image"><td>Order<td>Somebody, Some Street 7<td><button>Open</button></tr>`, 300) + `</table>
<script>let rows = Array.from({length: 20000}, (_, i) => ({id: i, name: 'order ' + i, lines: [i, i + 1]}));
setInterval(() => { document.getElementById('clock').textContent = new Date().toISOString() + ' ' + rows.filter((r) => r.id % 7 == 0).length; }, 1000);
setInterval(() => fetch('/fetch').then((r) => r.json()), 5000);</script>`

func serveCrowd(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/image" || r.URL.Path == "/fetch" {
		serveRequests(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html")
	_, _ = w.Write([]byte(crowdPage))
}

// steadyTime is for how long a crowd of sessions is looked at, once they are left alone.
const steadyTime = 20 * time.Second

// crowds measures how many sessions with a page of a site fit into a GiB and onto a core: their memory
// and processor time in a steady state, and the launcher's own share of both, for several sizes of the
// crowd.
func crowds(o options, binary string) (results []result, _ error) {
	for _, size := range strings.Split(o.crowds, ",") {
		n, err := strconv.Atoi(size)
		if err != nil {
			return nil, fmt.Errorf("-crowds: %w", err)
		}
		of, err := crowd(o, binary, n)
		if err != nil {
			return nil, fmt.Errorf("%d sessions: %w", n, err)
		}
		results = append(results, of...)
	}
	return results, nil
}

func crowd(o options, binary string, n int) (_ []result, err error) {
	s, err := startSidecar(binary, o.chrome)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	page, web, err := serve(serveCrowd)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, web.Close()) }()
	pid := s.cmd.Process.Pid
	alone, guards := pssOf(pid), memoryOf(pid)
	for i := range n {
		on, err := s.open(fmt.Sprintf("crowd-%d", i), page, nil)
		if err != nil {
			return nil, fmt.Errorf("session %d: %w", i, err)
		}
		defer on.client.net.Close() // the sessions end with the launcher
	}
	time.Sleep(settleTime)
	all, own, err := s.spentByAll()
	if err != nil {
		return nil, err
	}
	time.Sleep(steadyTime)
	allAfter, ownAfter, err := s.spentByAll()
	if err != nil {
		return nil, err
	}
	browsers, launcher := memoryOf(pid)-guards, pssOf(pid)
	each := func(d time.Duration) float64 { return d.Seconds() * 1e3 / steadyTime.Seconds() / float64(n) }
	busy, ownBusy := each(allAfter-all), each(ownAfter-own)
	name := fmt.Sprintf("%d sessions with a page of a site: ", n)
	return []result{
		{Name: name + "memory of a browser (PSS)", Unit: "MB", Value: browsers * 1024 / 1e6 / float64(n)},
		{Name: name + "memory of the launcher", Unit: "MB", Value: launcher * 1024 / 1e6},
		{Name: name + "memory of the launcher for each", Unit: "KiB", Value: (launcher - alone) / float64(n)},
		{Name: name + "sessions per GiB", Value: (1 << 20) * float64(n) / (browsers + launcher - alone)},
		{Name: name + "CPU of each, launcher's share in it", Unit: "ms/s", Value: busy},
		{Name: name + "the launcher's share", Unit: "ms/s", Value: ownBusy},
		{Name: name + "sessions per core", Value: 1e3 / busy},
	}, nil
}

// spentByAll is the CPU time of the launcher with its browsers, and of the launcher itself.
func (s *sidecar) spentByAll() (all, own time.Duration, err error) {
	if all, err = spentBy(s.cmd.Process.Pid); err != nil {
		return 0, 0, err
	}
	own, err = s.cpu()
	return all, own, err
}
