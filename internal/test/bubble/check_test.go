package bubble

import (
	"cmp"
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold/evidence"
	"leasehold/launcher/api"
	"leasehold/launcher/recovery"
	"leasehold/launcher/recovery/table"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// restating is how long a home that reaches the store over a good network may take to see that
// a profile is forgotten, and to say so.
const restating = 10 * time.Second

// checker checks the promises. It sees the whole world at once, which no launcher can.
type checker struct {
	w     *world
	table []lease.Transition

	mu     sync.Mutex
	losses int // how often the store forgot
	closed map[string]uint64
	truths map[string]*truth
}

// truth is what really happened to a profile.
type truth struct {
	highest    lease.Token // that was granted, on any host
	forsaken   lease.Token // the same of a home that was not there when the profile was made anew
	generation lease.Token // of the last grant that opened the profile, as opposed to one that joined
	home       string      // who made it, or got it by a review
	made       bool
	// uninspected are the directories on which a browser was since they were last found in order.
	uninspected map[string]bool
	last        uint64 // the sequence of the last event
	most        uint64 // the highest of all
	losses      int    // checker.losses then
	open        map[lease.Token]int
	granted     map[lease.Token]bool   // that somebody had on his disk
	joined      map[lease.Token]bool   // that were granted beside others
	owner       map[lease.Token]string // the session that a worker was told
	wentOn      map[string]bool        // sessions that went on in a next launcher
	ended       map[string]bool        // sessions whose workers were told so
	inOrder     lease.Token            // of the last session that ended in order, of the profile that roams
	orderly     []lease.Token          // what was left by those that did
	since       time.Duration          // when its state became what it is
	left        map[string]lease.Token // the directories that were left for another home, and under which token
}

// notOpened is a promise about what others left.
const notOpened = "P1 a directory that was left for another home is not opened"

func newChecker(w *world) *checker {
	return &checker{w: w, table: lease.Table(), closed: map[string]uint64{}, truths: map[string]*truth{}}
}

func (c *checker) of(profile string) *truth {
	t := c.truths[profile]
	if t == nil {
		t = &truth{uninspected: map[string]bool{}, open: map[lease.Token]int{}, granted: map[lease.Token]bool{}, joined: map[lease.Token]bool{}, owner: map[lease.Token]string{}, wentOn: map[string]bool{}, ended: map[string]bool{}, left: map[string]lease.Token{}}
		c.truths[profile] = t
	}
	return t
}

// forgot says that the store forgets now.
func (c *checker) forgot() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.losses++
	clear(c.closed)
}

// forgotPresences says that the store forgets them now. An epoch whose opening nobody confirmed
// may be opened again then.
func (c *checker) forgotPresences() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.closed)
}

// started checks the start of a browser, which comes after the token of its session is on
// the launcher's disk.
func (c *checker) started(b *fakeChrome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.w.count("browsers started")
	for _, other := range c.w.browsersOn(b.path) {
		if other != b {
			c.w.broken(oneChrome, "token %d opens %s beside the browser of token %d", b.token, b.path, other.newest())
		}
	}
	if b.reader {
		c.reads(b)
		return
	}
	t := c.of(b.profile)
	if b.byHand { // a person looks
		clear(t.uninspected)
	}
	if t.uninspected[b.path] {
		c.w.broken(inspectedFirst, "token %d opens %s, and nobody inspected it since a browser was on it", b.token, b.path)
	}
	t.uninspected[b.path] = true
	if token := t.left[b.path]; token != 0 {
		if c.couldSay(t.home) {
			c.w.broken(notOpened, "token %d opens %s, which was left to %s under token %d", b.token, b.path, t.home, token)
		}
		c.w.count("directories that were left, opened while nobody could know")
	}
	c.hasAll(t, b)
	c.grants(b.host, b.profile, b.token, false)
}

// grants checks a token that a launcher has on its disk. c.mu is held.
func (c *checker) grants(h *host, profile string, token lease.Token, joined bool) {
	t := c.of(profile)
	if t.granted[token] {
		return
	}
	if token <= t.highest && !joined || token <= t.generation {
		c.w.broken(tokensGrow, "%s grants token %d of %s after %d", h.id, token, profile, t.highest)
	}
	t.granted[token] = true
	t.highest = max(t.highest, token)
	if !joined {
		t.generation = token
	}
}

// granted checks a session that was granted.
func (c *checker) granted(p *process, s api.Session, q request) {
	if s.Ephemeral {
		c.reading(p, s)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.w.count("grants")
	t := c.of(s.ProfileID)
	if t.owner[s.Token] != "" {
		c.w.broken(tokensGrow, "token %d of %s is of session %s, and was of %s", s.Token, s.ProfileID, s.SessionID, t.owner[s.Token])
	}
	t.owner[s.Token] = s.SessionID
	var b *fakeChrome
	for _, one := range c.w.browsersOn(filepath.Join(p.host.profiles, s.ProfileID)) {
		b = one
	}
	if floor, err := p.root.Floor(s.ProfileID); err == nil && floor < s.Token && !p.dead.Load() {
		c.w.broken(tokensGrow, "token %d of %s is served, and the floor beside it is %d", s.Token, s.ProfileID, floor)
	}
	joined := t.joined[s.Token]
	c.grants(p.host, s.ProfileID, s.Token, joined)
	switch {
	case b == nil: // it has crashed meanwhile
	case joined:
		c.w.count("grants beside others")
	case b.session != s.SessionID: // it was started for another one
		c.w.count("browsers handed over")
		c.handedOver(p, b, s, q)
	}
	if b != nil && !joined { // runs of one browser have bundles of their own
		b.taken(s.Token)
	}
	if q.byHand {
		c.w.count("grants by hand")
	}
}

// waitsTooLong finds browsers that wait for a task for longer than they may, while nothing
// keeps their launcher from closing them.
func (c *checker) waitsTooLong() {
	c.w.mu.Lock()
	all := slices.Collect(maps.Values(c.w.chromes))
	c.w.mu.Unlock()
	for _, b := range all {
		b.mu.Lock()
		idle, since, by, bySince := b.idle, b.idleSince, b.by, b.bySince
		b.mu.Unlock()
		// Whoever finds one that waited while nobody had it closes it then.
		due := max(since+keptWarm, bySince, time.Duration(by.pausedTill.Load())) + 15*time.Second
		if idle && c.w.now() > due && !by.dead.Load() && !c.w.full {
			c.w.broken(keptWarmRule, "%v has waited for the next task for %v, and %v has had it since %v", b, c.w.now()-since, by, bySince)
		}
	}
}

// oneHolder is a promise about what is served.
const oneHolder = "a browser has one launcher"

// keptWarmRule is the promise about warm browsers.
const keptWarmRule = "a browser is handed over as it was left, to whom it fits"

// handedOver checks a warm browser that a session got.
func (c *checker) handedOver(p *process, b *fakeChrome, s api.Session, q request) {
	b.mu.Lock()
	by, happened, pages, before := b.by, b.cdp.happened, len(b.cdp.pages), b.token
	b.mu.Unlock()
	switch {
	case by != p.life:
		c.w.broken(keptWarmRule, "%s hands over a browser of %s that another launcher left", p.host.id, s.ProfileID)
	case happened:
		c.w.broken(keptWarmRule, "%s hands over a browser of %s in which something happened", p.host.id, s.ProfileID)
	case b.args != strings.Join(q.manifest.ChromeArgs, " "):
		c.w.broken(keptWarmRule, "%s hands over a browser of %s with the arguments %q to one who wants %q", p.host.id, s.ProfileID, b.args, q.manifest.ChromeArgs)
	case pages != 1:
		c.w.broken(keptWarmRule, "%s hands over a browser of %s with %d pages", p.host.id, s.ProfileID, pages)
	case q.byHand:
		c.w.broken(keptWarmRule, "%s hands over a browser of %s to a person", p.host.id, s.ProfileID)
	case !c.w.sealedSince(p, s.ProfileID, before):
		c.w.broken(evidenceFirst, "%s hands over the browser of token %d of %s, and no bundle of it is stored", p.host.id, before, s.ProfileID)
	case before >= s.Token:
		c.w.broken(tokensGrow, "%s hands over the browser of token %d of %s under token %d", p.host.id, before, s.ProfileID, s.Token)
	}
}

// adopted checks that nobody else drives a browser that is adopted.
func (c *checker) adopted(l *life, b *fakeChrome) {
	b.mu.Lock()
	by := b.by
	b.mu.Unlock()
	if by != l && !by.dead.Load() && by.host.living() != nil && by.host.living().life == by {
		c.w.broken(oneHolder, "%v adopts %v, whose launcher lives", l, b)
	}
	if l.as == "" || b.reader { // nobody goes on with a reader's
		return
	}
	if died, now := time.Duration(by.died.Load()), c.w.now(); by.as == "" && now < died+orphanTime-time.Second {
		c.w.broken(tooSoon, "the guard of %s takes %v %v after the launcher died that had it", l.host.id, b, now-died)
	}
}

const tooSoon = "a guard leaves a browser to the next launcher for a while"

// wentOn checks a session that goes on in the next launcher.
func (c *checker) wentOn(from, to *process, before, now api.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.of(now.ProfileID)
	if now.Ephemeral {
		c.w.broken(readersGone, "session %s on a copy of %s goes on in the next launcher", now.SessionID, now.ProfileID)
	}
	if t.ended[now.SessionID] {
		c.w.broken(goesOn, "session %s of %s goes on after its worker was told that it is over", now.SessionID, now.ProfileID)
	}
	if before.Token != now.Token || before.SessionID != now.SessionID {
		c.w.broken(tokensGrow, "session %s with token %d goes on as %s with %d", before.SessionID, before.Token, now.SessionID, now.Token)
	}
	if now.Token < t.generation {
		c.w.broken(staleWrites, "session %s of %s goes on with token %d after token %d was granted", now.SessionID, now.ProfileID, now.Token, t.generation)
	}
	t.wentOn[now.SessionID] = true
}

// goesOn is the promise about sessions that go on.
const goesOn = "a session goes on in the next launcher while its lease counts, and not if its end had begun"

// continues checks a lease that a next launcher of the host takes over from one that is gone.
func (c *checker) continues(by *process, t *truth, p, n lease.Record) {
	if p.State != lease.Held || n.State != lease.Held || n.Token != p.Token || n.SessionID != p.SessionID || n.PresenceEpoch == p.PresenceEpoch || n.LauncherID != by.host.id {
		return
	}
	var had *process
	c.w.mu.Lock()
	all := slices.Clone(c.w.all)
	c.w.mu.Unlock()
	for _, one := range all {
		if one != by && one.host == by.host {
			had = one
		}
	}
	if had == nil || !had.dead.Load() {
		return
	}
	c.w.count("leases that went on")
	t.wentOn[n.SessionID] = true
	if past := c.w.now() - time.Duration(had.died.Load()); past > timing.TTL+time.Second {
		c.w.broken(goesOn, "%s goes on with session %s of %s %v after its launcher died", by.host.id, n.SessionID, n.ProfileID, past)
	}
	if f, err := sessionfile.NewDir(by.host.data, key).Read(n.SessionID); err == nil && (f.Reason != "" || f.Evidence.EvidenceID != "") {
		c.w.broken(goesOn, "%s goes on with session %s of %s, which was about to end: %s", by.host.id, n.SessionID, n.ProfileID, f.Reason)
	}
}

// stands checks the browser of a worker who is gone for a moment.
func (c *checker) stands(p *process, s api.Session, now bool) {
	for _, b := range c.w.browsersOn(filepath.Join(p.host.profiles, s.ProfileID)) {
		b.mu.Lock()
		n, whose, alone := b.network, b.token, b.by == p.life
		b.mu.Unlock()
		n.mu.Lock()
		stopped := n.stopped
		n.mu.Unlock()
		if whose != s.Token || !alone {
			continue
		}
		if c.w.count("looks at a browser without its worker"); stopped != now {
			c.w.broken(standsStill, "%v stands still: %v, want %v", b, stopped, now)
		}
	}
}

const standsStill = "P10 the account stands still while its worker is gone"

// message checks a worker's message that reached a browser.
func (c *checker) message(n *link, b *fakeChrome, token string) {
	number, err := strconv.ParseUint(token, 10, 64)
	if err != nil || n.l.as != "" {
		c.w.broken("the world", "a message under token %q by %v", token, n.l)
		return
	}
	p, dead := n.l.host.p.Load(), n.l.dead.Load()
	switch {
	case p.life != n.l:
		c.w.broken(staleWrites, "a message of %s under token %s reaches %v, and the launcher after its own has begun", b.profile, token, b)
		return
	case dead && c.w.now() > time.Duration(n.l.died.Load()):
		c.w.broken(staleWrites, "a message of %s under token %s reaches %v, and its launcher is dead", b.profile, token, b)
		return
	case dead:
		// It was in the pipe when its launcher was killed: a kill takes nothing back. Within
		// that instant nobody else has acted: the next launcher begins when all this is over.
		c.w.count("messages in the pipe at a kill")
	}
	if b.reader {
		c.w.count("messages of readers")
		return
	}
	c.w.count("messages")
	c.write(p, b.profile, lease.Token(number))
}

// afterDeadline is more than a renewal that no write has shown moves a deadline by.
const afterDeadline = 3 * time.Second

// write checks a write of a worker that was accepted.
func (c *checker) write(p *process, profile string, token lease.Token) {
	epoch, deadline, err := p.launcher.Deadline()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.w.count("writes")
	if err == nil && deadline != 0 {
		p.deadline = deadline
	}
	t := c.of(profile)
	switch {
	case token < t.generation:
		c.w.broken(staleWrites, "%s writes under token %d of %s after token %d was granted", p.host.id, token, profile, t.generation)
	case err == nil && epoch <= c.closed[p.host.id]:
		c.w.broken(staleWrites, "%s writes under token %d of %s after others closed its epoch %d", p.host.id, token, profile, epoch)
	case p.deadline.Add(afterDeadline) < p.host.clock() && p.deadline != 0:
		c.w.broken(staleWrites, "%s writes under token %d of %s %v after its deadline", p.host.id, token, profile, p.host.clock().Sub(p.deadline))
	}
}

// closes checks that there is a bundle of what a browser was doing before it is closed.
func (c *checker) closes(h *handle) {
	if !h.reader && !c.w.sealedBy(h.l, h.profile, h.newest()) {
		c.w.broken(evidenceFirst, "%v closes %v, and no bundle of it is stored", h.l, h.fakeChrome)
	}
	if h.l.as != "" {
		c.w.count("browsers closed by the guard")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by != h.l {
		c.w.broken(oneHolder, "%v closes the browser of token %d of %s, which another has", h.l, h.token, h.profile)
	}
}

// signals counts browsers that are closed by signals.
func (c *checker) signals(*handle) { c.w.count("browsers closed by signals") }

// presence checks a presence that is about to be stored. The store is locked.
func (c *checker) presence(by *process, prev, next lease.Presence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if by.host.id == next.LauncherID && next.Epoch != prev.Epoch {
		by.opened = c.w.now()
	}
	if !next.Closed || prev.Closed || by.host.id == next.LauncherID {
		return
	}
	c.w.count("presences closed by others")
	c.closed[next.LauncherID] = max(c.closed[next.LauncherID], next.Epoch)
	c.stopped(next.LauncherID, next.Epoch)
}

// stopped checks that a launcher holds under that epoch nothing any more.
func (c *checker) stopped(launcher string, epoch uint64) {
	for _, h := range c.w.hosts {
		p := h.living()
		if h.id != launcher || p == nil {
			continue
		}
		current, deadline, err := p.launcher.Deadline()
		if err != nil || current > epoch {
			continue
		}
		if left := deadline.Sub(h.clock()); left > 0 {
			c.w.broken(stopsFirst, "epoch %d of %s is closed, and has %v left by its own clock", epoch, launcher, left)
		}
	}
}

// record checks a record that is about to be stored, and publishes its events. The store is
// locked. A person's are those of a review.
func (c *checker) record(by *process, person bool, p, n lease.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	writer := by.host.id
	if person && p.State == lease.ManualReview && n.State != lease.Quarantined {
		writer = noLauncher
	}
	t := c.of(n.ProfileID)
	events := c.publish(n, p)
	if n.State == lease.Held && len(n.LostRuns) > len(p.LostRuns) {
		c.w.count("runs lost beside others")
	}
	if n.State == lease.Held && n.Token > p.Token && p.State == lease.Held {
		t.joined[n.Token] = true
	}
	if n.Token < p.Token {
		c.w.broken(tokensGrow, "%s stores token %d of %s over %d", writer, n.Token, n.ProfileID, p.Token)
	}
	if p.State == "" && n.State != "" {
		c.made(by, writer, t, n)
	}
	c.continues(by, t, p, n)
	if n.SnapshotID != "" && n.SnapshotID != p.SnapshotID {
		c.snapshotted(by, n)
	}
	if n.State == p.State && n.Token == p.Token && len(n.Runs) == len(p.Runs) {
		return
	}
	t.since = c.w.now()
	if n.ProfileID == roams && mustStandStill(n.State) && len(c.w.writers()) > 0 {
		c.w.count("ephemeral sessions that could write when the account had to stand still")
	}
	c.w.count(string("to " + n.State))
	c.w.note("%s: %s of %s, token %d, becomes %s, token %d (%s)", writer, cmp.Or(string(p.State), "nothing"), n.ProfileID, p.Token, n.State, n.Token, n.Reason)
	// What the store lost is written again by who has it, with its events.
	rewritten := n.State == lease.Held && writer == n.LauncherID && (!events || t.granted[n.Token])
	created := p.State == "" && n.State == lease.Available && !events
	switch {
	case rewritten:
		c.w.count("leases written again")
	case created:
	case !events:
		c.w.broken(nothingLost, "%s of %s, token %d, became %s, token %d, without an event", p.State, n.ProfileID, p.Token, n.State, n.Token)
	case !slices.ContainsFunc(c.table, func(row lease.Transition) bool {
		return row.From == p.State && row.To == n.State && may(row.By, writer, p, n)
	}):
		c.w.broken(theTable, "%s makes %s of %s (%s)", writer, n.State, cmp.Or(string(p.State), "nothing"), n.ProfileID)
	}
	came := n.Moved != nil && n.Moved.Token == n.Token && n.HomeToken == n.Token && p.Token < n.Token
	if n.Home != "" && p.Home != n.Home && (writer == noLauncher || n.Reason == lease.ReasonContested) || came {
		t.home = n.Home
		for _, path := range c.w.pathsOf(n.ProfileID, n.Home) {
			delete(t.left, path)
		}
	}
	if came {
		c.came(t, p, n)
	}
	c.moved(by, writer, t, p, n)
}

// came checks a profile that came to another home. c.mu is held.
func (c *checker) came(t *truth, p, n lease.Record) {
	c.w.count("homes changed")
	c.travelled(t, p, n)
	if n.Token <= t.highest {
		c.w.broken(tokensGrow, "%s came to %s under token %d after %d", n.ProfileID, n.Home, n.Token, t.highest)
	}
	for _, path := range c.w.pathsOf(n.ProfileID, p.Home) {
		if p.Home != n.Home {
			t.left[path] = n.Token
		}
		for _, b := range c.w.browsersOn(path) {
			if living := b.host.living(); living != nil && living.life == b.by && !b.waits() && int64(c.w.now()) > living.pausedTill.Load() && !b.host.cut() {
				c.w.broken(stopsFirst, "%s came to %s while its home has %v open", n.ProfileID, n.Home, b)
			}
		}
	}
	for _, path := range c.w.pathsOf(n.ProfileID, n.Home) { // it gets another directory there
		delete(t.uninspected, path)
	}
}

// couldSay tells whether a launcher reaches the store over a good network, and did for long
// enough to say what it remembers. c.mu is held.
func (c *checker) couldSay(home string) bool {
	for _, h := range c.w.hosts {
		if p := h.living(); h.id == home && p != nil {
			return c.connected(p) > restating && h.bad.Load() == 0 && !c.w.server.away.Load()
		}
	}
	return false
}

// connected is for how long a launcher has had a presence, and reached the store. Without a
// presence it may say nothing: a copy of its data directory could run elsewhere. c.mu is held.
func (c *checker) connected(p *process) time.Duration {
	if p.opened == 0 {
		return 0
	}
	return c.w.now() - max(p.opened, time.Duration(p.host.cutUntil.Load()), c.w.backAt, time.Duration(p.pausedTill.Load()))
}

// made checks a record that is made where the store had none.
func (c *checker) made(by *process, writer string, t *truth, n lease.Record) {
	if !t.made {
		t.made, t.home = true, n.Home
		return
	}
	if n.Home == t.home || n.State == lease.Quarantined {
		return
	}
	c.w.count("profiles made anew elsewhere")
	k := by.roster.Of(n.ProfileID)
	if k.Home != "" && k.Home != writer {
		c.w.broken(neverAnew, "%s makes %s anew, and remembers it as one of %s", writer, n.ProfileID, k.Home)
	}
	for _, h := range c.w.hosts {
		p := h.living()
		if h.id != t.home || p == nil {
			continue
		}
		connected := c.connected(p)
		if k.Home == writer { // that was its home before, and says so at once: it grants nothing yet
			connected = min(connected, c.w.now()-c.w.forgot)
		}
		if connected > restating && h.bad.Load() == 0 {
			c.w.broken(neverAnew, "%s makes %s anew, whose home %s could have said so for %v", writer, n.ProfileID, h.id, connected)
		}
	}
	// Its home is not there, and nobody else knew: it is contested when that one is back.
	t.home = n.Home
	clear(t.left)
	t.forsaken, t.highest, t.generation = max(t.forsaken, t.highest), 0, 0
	t.begins()
	clear(t.granted)
	clear(t.joined)
	clear(t.owner)
}

// estranged are the profiles that were made anew, and never contested since.
func (c *checker) estranged() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for profile, t := range c.truths {
		if t.forsaken != 0 {
			all = append(all, profile+" was made anew, its first home is back, and it was never contested")
		}
	}
	return all
}

// moved checks a transition from p to n.
func (c *checker) moved(by *process, writer string, t *truth, p, n lease.Record) {
	if n.State == lease.Quarantined && p.State != lease.Quarantined && n.RememberedBy == "" {
		if n.Token <= p.Token {
			c.w.broken(staleWrites, "quarantine of %s leaves token %d valid", n.ProfileID, p.Token)
		}
		// A contest fences at once, in whatever state.
		if writer != p.LauncherID && p.LauncherID != "" && p.State == lease.SuspectedStale && n.Reason != lease.ReasonContested {
			c.stopped(p.LauncherID, p.PresenceEpoch)
		}
	}
	if n.State == lease.Quarantined && n.Reason == lease.ReasonContested && p.Reason != n.Reason {
		c.w.count("homes contested")
		if p.State == lease.Held { // stored before, and perhaps answered after this
			t.granted[p.Token] = true
		}
		if t.highest = max(t.highest, t.forsaken); n.Token <= t.highest {
			c.w.broken(tokensGrow, "%s is contested under token %d after %d", n.ProfileID, n.Token, t.highest)
		}
		t.forsaken = 0
		t.begins()
	}
	inspected := p.State == lease.Inspected && (n.State == lease.Available || n.State == lease.ResumePending)
	released := p.State == lease.Held && (n.State == lease.Available || n.State == lease.ResumePending)
	examined := p.State == lease.Quarantined && n.State == lease.Inspected
	abandoned := n.State == lease.ManualReview && (p.State == lease.Quarantined || p.State == lease.Inspected && n.DecisionVersion == 0)
	if abandoned && by.host.full.Load() && n.EvidenceID == p.EvidenceID {
		c.w.count("abandoned on a full disk") // the one case in which a person gets a profile without a bundle
		abandoned = false
	}
	if (inspected || released || examined || abandoned) && n.SessionID != "" {
		c.evidence(by, p, n)
	}
	if released {
		c.endedInOrder(t, n)
	}
	if inspected || released {
		for _, path := range c.w.pathsOf(n.ProfileID, n.Home) {
			for _, b := range c.w.browsersOn(path) {
				if released && b.leftWarm() {
					c.w.count("browsers left warm")
					continue
				}
				c.w.broken(inspectedFirst, "%s of %s becomes %s under the browser of token %d", p.State, n.ProfileID, n.State, b.newest())
			}
			delete(t.uninspected, path)
		}
	}
	if inspected && t.wentOn[n.SessionID] {
		c.w.broken(goesOn, "session %s of %s went on in a next launcher, and is decided without a person: %s", n.SessionID, n.ProfileID, n.State)
	}
	if inspected {
		i, err := inspectionOf(by, n)
		if err != nil || i.Decision != n.Decision || i.DecisionVersion != table.Version {
			c.w.broken(inspectedFirst, "%s becomes %s, by an inspection that says %q (%v)", n.ProfileID, n.State, i.Decision, err)
		}
	}
	if n.State == lease.Available && writer == noLauncher {
		clear(t.uninspected)
	}
}

// evidence checks that the record names a stored bundle of its own session.
func (c *checker) evidence(by *process, p, n lease.Record) {
	raw, err := by.archive.Manifest(context.Background(), n.EvidenceID)
	var m evidence.Manifest
	if err == nil {
		m, err = evidence.Decode(n.EvidenceID, raw)
	}
	switch {
	case err != nil:
		c.w.broken(evidenceFirst, "%s of %s became %s, and its bundle %q is not stored: %v", p.State, n.ProfileID, n.State, n.EvidenceID, err)
	case m.SessionID != n.SessionID && !c.w.sealed(by, n.ProfileID, n.SessionID):
		c.w.broken(evidenceFirst, "%s of %s became %s with the bundle of session %s, and none of its own %s is stored", p.State, n.ProfileID, n.State, m.SessionID, n.SessionID)
	}
}

// publish puts the record's new events on the stream, as package natskv does: those that come
// after its last one, by token and sequence. It tells whether there were any.
func (c *checker) publish(n, p lease.Record) (events bool) {
	t, stream := c.of(n.ProfileID), c.w.server.stream
	for i, e := range n.Outbox {
		if e.Sequence <= p.Sequence {
			continue
		}
		events = true
		var last lease.Event
		if all := stream[n.ProfileID]; len(all) > 0 {
			last = all[len(all)-1]
		}
		if e.Token < last.Token || e.Token == last.Token && e.Sequence <= last.Sequence {
			newest := i == len(n.Outbox)-1
			if healed := p.State == "" && n.Home == t.home; newest && (healed && n.State != lease.Held || t.losses == c.losses) {
				c.w.broken(nothingLost, "event %s of %s, token %d, has sequence %d, and the stream is at token %d, sequence %d: it is never published", e.Event, n.ProfileID, e.Token, e.Sequence, last.Token, last.Sequence)
			}
			continue
		}
		// After the store forgot, sequences count from an old record, until somebody who
		// remembers the newer one writes it.
		if e.Sequence != t.last+1 && t.losses == c.losses && t.last == t.most {
			c.w.broken(nothingLost, "event %s of %s has sequence %d after %d", e.Event, n.ProfileID, e.Sequence, t.last)
		}
		c.w.count("events")
		stream[n.ProfileID] = append(stream[n.ProfileID], e)
		t.last, t.most, t.losses = e.Sequence, max(t.most, e.Sequence), c.losses
		c.runs(t, e)
	}
	return events
}

// runs checks that each run that was granted ends.
func (c *checker) runs(t *truth, e lease.Event) {
	run := cmp.Or(e.RunToken, e.Token)
	switch e.Event {
	case lease.EventGranted:
		if e.Reason != "reasserted" {
			t.open[run] = c.losses
		}
	case lease.EventReleased, lease.EventExpired:
		delete(t.open, run)
	case string(lease.Available), string(lease.ResumePending), string(lease.Inspected):
		for run, losses := range t.open {
			if losses == c.losses {
				c.w.broken(everyRunEnds, "%s is %s, and run %d of it never ended", e.ProfileID, e.Event, run)
			}
		}
	}
}

// inspectionOf is what the launcher has on its disk of the inspection that belongs to the record.
func inspectionOf(p *process, r lease.Record) (api.Inspection, error) {
	return recovery.New(recovery.Options{LauncherID: p.host.id, DataDir: p.host.data, Key: key, Root: p.root, Metrics: prometheus.NewRegistry()}).Inspection(r)
}

// over notes that a worker was told that his session is over.
func (c *checker) over(s api.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.w.count("sessions released")
	c.of(s.ProfileID).ended[s.SessionID] = true
}
