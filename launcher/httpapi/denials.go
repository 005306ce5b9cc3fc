package httpapi

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"leasehold/launcher/api"
)

// maxDenials is how many refusals a minute are logged one by one: a refused caller can ask
// again as often as they like, and must not fill the disk.
const maxDenials = 100

// denials logs who was refused what.
type denials struct {
	log zerolog.Logger

	// most is how many a minute are logged one by one.
	most int

	mu     sync.Mutex
	minute time.Time
	count  int
}

// note logs that a call was refused because of who asked.
func (d *denials) note(c *call, p *api.Problem) {
	d.mu.Lock()
	if now := time.Now().Truncate(time.Minute); !now.Equal(d.minute) {
		d.minute, d.count = now, 0
	}
	d.count++
	count := d.count
	d.mu.Unlock()
	if count > d.most {
		if count == d.most+1 {
			d.log.Warn().Int("refused", d.most).Msg("more callers are refused: the others of this minute are not logged")
		}
		return
	}
	name := c.who.Name
	if name == "" {
		name = "unknown"
	}
	e := d.log.Warn().Str("principal", name).Str("peer", c.r.RemoteAddr).Str("code", p.Code).
		Str("route", c.route.method+" "+c.route.pattern).Str("why", p.Detail)
	if profile := c.param("profile"); profile != "" {
		e = e.Str("profile", clip(profile))
	}
	e.Msg("caller refused")
}
