package view

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"leasehold/checkpoint"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

const (
	// writeTimeout bounds how long a viewer may take for one message; takeTimeout, how long it
	// may take to confirm a picture.
	writeTimeout = 10 * time.Second
	takeTimeout  = 30 * time.Second
	// closeTimeout bounds the close handshake.
	closeTimeout = time.Second
	// maxUp is the longest message from a viewer, in bytes.
	maxUp = 256 << 10
	// maxReplies is how many refusals wait for a viewer; beyond it the oldest are dropped.
	maxReplies = 16
)

// viewer is one websocket that watches a session. It is an api.Connection.
type viewer struct {
	watch *watch
	// who it is. The watch's mutex guards its Person, which only read sets.
	who   principal.Principal
	woken chan struct{} // has room for one: there may be something to send, or the connection ends
	// patience bounds how long one message may take to be written.
	patience time.Duration
	// Only Serve and read use these: left ends that the viewer counts as present; whether the last click became
	// a question, the target that did not say what was clicked last, the inputs of a pointer that their pages have
	// not answered, and the number of the dialog that was answered last.
	left     func()
	asking   bool
	hangs    string
	pointed  pointed
	answered uint64

	// Guarded by the watch's mutex:
	target    string // the page that it asked for; empty: the one that the worker used last
	paused    bool
	size      size
	sent      [kinds]uint64  // versions of the messages that it was sent
	showed    showingMessage // the last one that it was sent
	told      *hands         // what it was last told about who has the session
	acted     uint64         // the last change of an action that it was sent
	lastActed uint64         // the highest number of an action that it was sent
	sentFrame uint64         // sequence of the last picture of its page
	untaken   []untaken      // pictures that it has not confirmed yet
	replies   [][]byte
	pong      []byte   // payload of the last ping; nil: no answer is owed
	chosen    chosen   // what it was last asked about
	closing   *closing // nil: the connection goes on
}

type untaken struct {
	sequence uint64
	at       time.Time
}

// closing is why a viewer's connection ends. Without a code nothing can be sent any more.
type closing struct {
	code   ws.StatusCode
	reason string
}

func newViewer(w *watch, who principal.Principal) *viewer {
	return &viewer{watch: w, who: who, woken: make(chan struct{}, 1), patience: writeTimeout, pointed: pointed{}}
}

// Session is the session that is watched.
func (v *viewer) Session() api.Session { return v.watch.session.Show() }

// Cancel removes a viewer that was never served.
func (v *viewer) Cancel() { v.watch.gallery.leave(v) }

// Serve carries messages until either side ends, and closes conn.
func (v *viewer) Serve(conn net.Conn, buffered *bufio.Reader) {
	log := v.watch.log.With().Str("principal", v.who.Name).Stringer("peer", conn.RemoteAddr()).Logger()
	log.Info().Msg("somebody watches")
	defer v.watch.gallery.leave(v)
	v.left = v.watch.session.Present(v.who)
	defer func() { v.left() }()
	var writing sync.WaitGroup
	writing.Go(func() { v.write(conn) })
	v.read(buffered)
	v.pointed.forgetAll()
	writing.Wait()
	linger(conn)
	_ = conn.Close()
	v.watch.mu.Lock()
	why := v.closing
	v.watch.mu.Unlock()
	log.Info().Int("code", int(why.code)).Str("reason", why.reason).Msg("somebody watches no more")
}

// linger lets the other side read what was sent, and then close: who closes a connection before it has
// read everything resets it, and what is on its way, the close frame at the end, is lost. The writer
// has set how long this may take.
func linger(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
	}
}

// wake makes the viewer look for what is new.
func (v *viewer) wake() {
	select {
	case v.woken <- struct{}{}:
	default:
	}
}

// close ends the connection, once.
func (v *viewer) close(code ws.StatusCode, reason string) {
	v.watch.mu.Lock()
	defer v.watch.mu.Unlock()
	if v.closing == nil {
		v.closing = &closing{code, reason}
	}
	v.wake()
}

// showing is the target of the page that it sees; empty: no page is open. The caller holds the
// watch's mutex.
func (v *viewer) showing() string {
	if w := v.watch; v.target == "" || !w.open[v.target] {
		return w.used
	}
	return v.target
}

// next returns what the viewer has not received yet: messages, and then a picture, if it can
// take one. The caller must not hold the watch's mutex.
func (v *viewer) next(now time.Time) (texts [][]byte, picture *frame, end *closing) {
	w := v.watch
	over := v.who.Link && v.lacksSession()
	w.mu.Lock()
	defer w.mu.Unlock()
	for kind := range kinds {
		if l := w.latest[kind]; l.version > v.sent[kind] {
			v.sent[kind] = l.version
			text := l.text
			if v.who.Link {
				text = l.forLink
			}
			texts = append(texts, text)
			if kind == kindEnded && v.closing == nil {
				v.closing = &closing{ws.StatusNormalClosure, "the session is not shown any more"}
			}
		}
		if kind == kindTabs {
			texts = append(texts, v.nextOfPage()...)
		}
	}
	texts = append(texts, v.replies...)
	v.replies = nil
	if over && v.closing == nil {
		v.closing = &closing{ws.StatusPolicyViolation, "the sign-in link is over"}
	}
	if v.closing != nil {
		return texts, nil, v.closing
	}
	if f := w.frames[v.showing()]; f != nil && !v.paused && f.head.Sequence > v.sentFrame && len(v.untaken) < maxUntaken {
		v.sentFrame, v.untaken = f.head.Sequence, append(v.untaken, untaken{f.head.Sequence, now})
		picture = f
		w.wakeCasts()
	}
	if len(v.untaken) > 0 && now.Sub(v.untaken[0].at) > takeTimeout {
		v.closing = &closing{ws.StatusPolicyViolation, "a picture was not taken in time: the page that watches is too slow, or gone"}
		return texts, nil, v.closing
	}
	return texts, picture, nil
}

// lacksSession tells whether the session that the watch shows is not the viewer's by hand. The session
// itself is asked as well: the watch learns of its person some time after they may act. The caller must not
// hold the watch's mutex.
func (v *viewer) lacksSession() bool {
	w := v.watch
	w.mu.Lock()
	seen := w.latest[kindTabs].version > 0 && !v.hands().yours
	w.mu.Unlock()
	return seen && w.session.PersonIs(v.who) != nil
}

// hands are who has the session by hand, and whether that is this viewer.
type hands struct {
	person api.Person // without a name: nobody
	yours  bool
}

// hands returns who has the session now. The caller holds the watch's mutex.
func (v *viewer) hands() hands {
	who := v.watch.person
	yours := who.Principal != "" && who.Principal == v.who.Name
	return hands{who, yours && (v.who.ActsAs(who.Name) || v.watch.session.Manifest().ByHand != nil)}
}

// nextOfPage returns the messages about the page that the viewer sees, about who has the session, and
// about what the worker did. Who has a sign-in link is told of themselves, and of no worker. The
// caller holds the watch's mutex.
func (v *viewer) nextOfPage() (texts [][]byte) {
	w := v.watch
	add := func(message any) {
		if text, err := json.Marshal(message); err == nil { // these messages can always be encoded
			texts = append(texts, text)
		}
	}
	showing := showingMessage{"showing", v.showing(), v.target == "" || v.target != v.showing()}
	if w.latest[kindTabs].version > 0 && showing != v.showed {
		if showing.Target != v.showed.Target {
			v.sentFrame = 0
		}
		v.showed = showing
		add(showing)
	}
	if now := v.hands(); (v.told == nil || now != *v.told) && (now.yours || !v.who.Link) {
		v.told = &now
		message := personMessage{Type: "person", Yours: now.yours}
		if now.person.Name != "" {
			message.Person = &now.person
		}
		add(message)
	}
	if v.who.Link {
		return texts
	}
	if actions, missed := w.actions.after(v.acted, v.lastActed); len(actions) > 0 {
		v.acted, v.lastActed = w.actions.changes, actions[len(actions)-1].Number
		add(actionsMessage{"actions", actions, missed})
	}
	return texts
}

// write sends what is new until the connection is to end.
func (v *viewer) write(conn net.Conn) {
	ctx := v.watch.gallery.ctx
	ticker := time.NewTicker(takeTimeout / 6)
	defer ticker.Stop()
	for {
		texts, picture, end := v.next(time.Now())
		err := v.answerPing(conn)
		for _, text := range texts {
			err = errors.Join(err, v.send(conn, ws.OpText, text))
		}
		if picture != nil {
			err = errors.Join(err, v.send(conn, ws.OpBinary, picture.wire))
		}
		switch {
		case err != nil:
			v.close(0, "it does not read: "+err.Error())
			_ = conn.Close() // makes read return
			return
		case end != nil:
			if end.code != 0 {
				_ = v.send(conn, ws.OpClose, ws.NewCloseFrameBody(end.code, end.reason)) // the connection ends in either case
			}
			_ = conn.SetReadDeadline(time.Now().Add(closeTimeout)) // if there are no deadlines, Serve closes the connection
			return
		}
		select {
		case <-v.woken:
		case <-ticker.C:
		case <-ctx.Done():
			v.close(ws.StatusGoingAway, "the launcher is shutting down")
		}
	}
}

// answerPing answers the last ping, if that is still owed.
func (v *viewer) answerPing(conn net.Conn) error {
	v.watch.mu.Lock()
	pong := v.pong
	v.pong = nil
	v.watch.mu.Unlock()
	if pong == nil {
		return nil
	}
	return v.send(conn, ws.OpPong, pong)
}

func (v *viewer) send(conn net.Conn, op ws.OpCode, payload []byte) error {
	var head bytes.Buffer
	if err := ws.WriteHeader(&head, ws.Header{Fin: true, OpCode: op, Length: int64(len(payload))}); err != nil {
		return err
	}
	if err := conn.SetWriteDeadline(time.Now().Add(v.patience)); err != nil {
		return err
	}
	_, err := (&net.Buffers{head.Bytes(), payload}).WriteTo(conn)
	return err
}

// read takes in what the viewer sends, until the connection ends.
func (v *viewer) read(from io.Reader) {
	r := wsutil.Reader{Source: from, State: ws.StateServerSide, CheckUTF8: true, MaxMessageSize: maxUp, MaxFrameSize: maxUp, OnIntermediate: v.control}
	for {
		head, err := r.NextFrame()
		if err == nil && head.OpCode.IsControl() {
			err = v.control(head, &r)
		} else if err == nil {
			var text []byte
			if text, err = io.ReadAll(&r); err == nil {
				v.take(head.OpCode, text)
			}
		}
		var closed wsutil.ClosedError
		switch {
		case err == nil:
			continue
		case errors.As(err, &closed):
			v.close(ws.StatusNormalClosure, "")
		case errors.Is(err, wsutil.ErrFrameTooLarge), errors.Is(err, wsutil.ErrMessageTooLarge):
			v.close(ws.StatusMessageTooBig, "a message is longer than 256 KiB")
		case errors.Is(err, wsutil.ErrInvalidUTF8):
			v.close(ws.StatusInvalidFramePayloadData, "a text is not UTF-8")
		default:
			v.close(0, err.Error())
		}
		return
	}
}

// control answers pings, and ends with a close frame.
func (v *viewer) control(head ws.Header, payload io.Reader) error {
	body, err := io.ReadAll(payload)
	switch {
	case err != nil:
		return err
	case head.OpCode == ws.OpClose:
		return wsutil.ClosedError{Code: ws.StatusNormalClosure}
	}
	if head.OpCode == ws.OpPing {
		v.watch.mu.Lock()
		defer v.watch.mu.Unlock()
		v.pong = append([]byte{}, body...)
		v.wake()
	}
	return nil
}

// up is a message from a viewer.
type up struct {
	Type     string  `json:"type"`
	Sequence uint64  `json:"sequence"`
	Target   string  `json:"target"`
	Width    float64 `json:"width"`
	Height   float64 `json:"height"`
	DPR      float64 `json:"dpr"`
	Quality  int     `json:"quality"`

	// The following is only for the person who has the session by hand; see hand.
	Kind      string   `json:"kind"`
	X         float64  `json:"x"`
	Y         float64  `json:"y"`
	DX        float64  `json:"dx"`
	DY        float64  `json:"dy"`
	Button    string   `json:"button"`
	Buttons   int      `json:"buttons"`
	Clicks    int      `json:"clicks"`
	Modifiers int      `json:"modifiers"`
	Points    []point  `json:"points"`
	Key       string   `json:"key"`
	Code      string   `json:"code"`
	KeyCode   int      `json:"key_code"`
	Location  int      `json:"location"`
	Repeat    bool     `json:"repeat"`
	Text      string   `json:"text"`
	Start     int      `json:"start"`
	End       int      `json:"end"`
	URL       string   `json:"url"`
	Accept    bool     `json:"accept"`
	Number    uint64   `json:"number"` // of the dialog that is answered
	Index     int      `json:"index"`
	Names     []string `json:"names"`
	Person    string   `json:"person"` // who looks, of those that share the principal
}

// take does what one message says, or answers why it does not.
func (v *viewer) take(op ws.OpCode, text []byte) {
	var m up
	err := json.Unmarshal(text, &m)
	if op != ws.OpText {
		err = errors.New("want JSON in a text message")
	}
	switch {
	case err != nil:
	case m.Type == "person":
		err = v.names(m.Person)
	case inputs[m.Type] != nil:
		err = v.input(m)
	default:
		err = v.do(m)
	}
	var p *api.Problem
	switch {
	case err == nil:
		return
	case v.who.Link && errors.As(err, &p) && p.Code == api.CodeTakenOver: // who has it now is not theirs to know
		err = errors.New("the sign-in link is over")
	}
	v.reply(refusal(m.Type, err))
}

// refusal says that an input of the viewer was not carried out.
func refusal(what string, why error) []byte {
	text, _ := json.Marshal(refusedMessage{"refused", what, why.Error()}) // it can always be encoded
	return text
}

// reply sends one more message. If too many wait, it replaces the oldest.
func (v *viewer) reply(reply []byte) {
	v.watch.mu.Lock()
	defer v.watch.mu.Unlock()
	if len(v.replies) == maxReplies {
		v.replies = v.replies[1:]
	}
	v.replies = append(v.replies, reply)
	v.wake()
}

// names takes in who of those that share the principal looks here. A person without a name has the principal's, as
// at a take-over.
func (v *viewer) names(person string) error {
	if v.who.Link {
		return errors.New("a sign-in link is for one person")
	}
	who := v.who
	who.Person = checkpoint.Clip(cmp.Or(person, who.Name))
	before := v.left
	v.left = v.watch.session.Present(who)
	before()
	v.watch.mu.Lock()
	defer v.watch.mu.Unlock()
	v.who.Person = who.Person
	v.wake()
	return nil
}

// do does what a message says.
func (v *viewer) do(m up) error {
	w := v.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	switch m.Type {
	case "ack":
		for len(v.untaken) > 0 && v.untaken[0].sequence <= m.Sequence {
			v.untaken = v.untaken[1:]
		}
	case "show":
		if m.Target != "" && !w.open[m.Target] {
			return errors.New("there is no such page any more")
		}
		v.target = m.Target
	case "size":
		pixels := func(n float64) int { return int(max(0, min(n*max(m.DPR, 1), 1<<14))) }
		v.size = size{pixels(m.Width), pixels(m.Height), m.Quality}
	case "pause":
		v.paused = true
	case "resume":
		v.paused, v.sentFrame = false, 0
	default:
		return errors.New("want one of ack, show, size, pause, resume and person, or an input")
	}
	w.wakeCasts()
	v.wake()
	return nil
}

var _ api.Connection = (*viewer)(nil)
