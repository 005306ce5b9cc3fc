package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"image/jpeg"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

// What a person waits for who has a session by hand: from a key that is pressed to the picture that
// shows what it did. In the table Chrome's own screencast, by way of its port, stands in the column
// of the port: the same key, on the same page, with nothing between.

const (
	keysPerRound = 12
	// betweenKeys is about as long as somebody who types takes, so that the page stands still.
	betweenKeys = 150 * time.Millisecond
)

// flips is a page that is black or white, and the other one with each key.
const flips = `<!doctype html><title>keys</title><body style="background:#000"><script>
let on = false;
onkeydown = () => { on = !on; document.body.style.background = on ? "#fff" : "#000"; };
</script>`

const keyDown = `{"type":"keyDown","key":"a","code":"KeyA","windowsVirtualKeyCode":65,"text":"a"}`

// isWhite tells how the page looks on a picture.
func isWhite(image []byte) (bool, error) {
	decoded, err := jpeg.Decode(bytes.NewReader(image))
	if err != nil {
		return false, err
	}
	b := decoded.Bounds()
	r, _, _, _ := decoded.At(b.Min.X+b.Dx()/2, b.Min.Y+b.Dy()/2).RGBA()
	return r > 1<<15, nil
}

// keyboard presses a key, and returns pictures one after the other, each with when it came.
type keyboard interface {
	press() error
	picture() (image []byte, at time.Time, err error)
	close() error
}

// keyToPicture takes that measure.
func (r *rig) keyToPicture(o options) (_ []result, err error) {
	const name = "key to picture"
	if !o.wants(name) {
		return nil, nil
	}
	base, web, err := serve(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, flips)
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, web.Close()) }()
	page := strings.TrimSuffix(base, "/") + "/keys"
	s := &r.launcher
	for _, call := range [][2]string{{"Page.navigate", `{"url":"` + page + `"}`}, {"Page.bringToFront", `{}`}} {
		if _, err := s.client.call(s.session, call[0], call[1]); err != nil {
			return nil, err
		}
	}
	time.Sleep(settling)
	view, err := r.viewURL()
	if err != nil {
		return nil, err
	}
	var typical, slowest taken
	for round := range o.rounds + 1 {
		var took [2][]float64
		for k := range 2 {
			by := (k + round) % 2
			begin := func() (keyboard, error) { return r.byPort(page) }
			if by == 1 {
				begin = func() (keyboard, error) { return r.byView(view) }
			}
			board, err := begin()
			if err != nil {
				return nil, err
			}
			took[by], err = pressKeys(board)
			if err = errors.Join(err, board.close()); err != nil {
				return nil, err
			}
		}
		if round > 0 { // the first only warms up
			typical.add(median(took[0]), median(took[1]), 0)
			slowest.add(slices.Max(took[0]), slices.Max(took[1]), 0)
		}
	}
	return []result{
		typical.result(name+" p50", "ms", 0),
		slowest.result(fmt.Sprintf("%s, slowest of %d", name, keysPerRound), "ms", 0),
	}, nil
}

// pressKeys returns how long each key took to be seen, in milliseconds.
func pressKeys(board keyboard) (took []float64, err error) {
	first, _, err := board.picture()
	if err != nil {
		return nil, err
	}
	white, err := isWhite(first)
	if err != nil {
		return nil, err
	}
	for range keysPerRound {
		time.Sleep(betweenKeys)
		begun := time.Now()
		if err := board.press(); err != nil {
			return nil, err
		}
		for before := white; white == before; {
			image, at, err := board.picture()
			if err != nil {
				return nil, err
			}
			if white, err = isWhite(image); err != nil {
				return nil, err
			}
			if white != before {
				took = append(took, float64(at.Sub(begun).Microseconds())/1e3)
			}
		}
	}
	return took, nil
}

// portKeyboard is Chrome's screencast by way of its port.
type portKeyboard struct {
	client  *client
	session string
}

func (r *rig) byPort(page string) (keyboard, error) {
	c := r.port.client
	msg, err := c.call("", "Target.getTargets", `{}`)
	if err != nil {
		return nil, err
	}
	var list struct {
		Result struct {
			TargetInfos []struct{ TargetID, URL string }
		}
	}
	if err := json.Unmarshal(msg, &list); err != nil {
		return nil, err
	}
	for _, t := range list.Result.TargetInfos {
		if t.URL != page {
			continue
		}
		session, err := c.attach(t.TargetID)
		if err != nil {
			return nil, err
		}
		b := &portKeyboard{c, session}
		_, err = c.send(b.session, "Page.startScreencast", `{"format":"jpeg","quality":60,"maxWidth":1920,"maxHeight":1200}`)
		return b, err
	}
	return nil, fmt.Errorf("no target shows %s", page)
}

func (b *portKeyboard) press() error {
	_, err := b.client.send(b.session, "Input.dispatchKeyEvent", keyDown)
	return err
}

func (b *portKeyboard) picture() ([]byte, time.Time, error) {
	for {
		msg, err := b.client.next()
		if err != nil {
			return nil, time.Time{}, err
		}
		at := time.Now()
		if !bytes.Contains(msg, []byte(`"Page.screencastFrame"`)) {
			continue
		}
		var f struct {
			SessionID string `json:"sessionId"`
			Params    struct {
				Data  []byte `json:"data"`
				Start int    `json:"sessionId"`
			} `json:"params"`
		}
		if err := json.Unmarshal(msg, &f); err != nil {
			return nil, at, err
		}
		if f.SessionID != b.session {
			continue
		}
		_, err = b.client.send(b.session, "Page.screencastFrameAck", fmt.Sprintf(`{"sessionId":%d}`, f.Params.Start))
		return f.Params.Data, at, err
	}
}

func (b *portKeyboard) close() error {
	if _, err := b.client.call(b.session, "Page.stopScreencast", `{}`); err != nil {
		return err
	}
	_, err := b.client.call("", "Target.detachFromTarget", `{"sessionId":"`+b.session+`"}`)
	return err
}

// viewKeyboard is a person's, who has taken the session over.
type viewKeyboard struct {
	conn     net.Conn
	session  string // its URL
	handBack string // the body of the request
}

func (r *rig) byView(view string) (keyboard, error) {
	b := &viewKeyboard{session: "http" + strings.TrimSuffix(strings.TrimPrefix(view, "ws"), "/view")}
	resp, err := http.Get(b.session)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var s struct {
		Token uint64 `json:"lease_token"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		return nil, err
	}
	b.handBack = fmt.Sprintf(`{"lease_token":%d}`, s.Token)
	if err := b.post("/take-over", fmt.Sprintf(`{"lease_token":%d,"person":"bench"}`, s.Token)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	if b.conn, _, _, err = ws.Dial(ctx, view); err != nil {
		return nil, errors.Join(fmt.Errorf("watching: %w", err), b.post("/hand-back", b.handBack))
	}
	return b, nil
}

func (b *viewKeyboard) post(path, body string) error {
	resp, err := http.Post(b.session+path, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s %s", path, resp.Status, said)
	}
	return nil
}

func (b *viewKeyboard) press() error {
	return wsutil.WriteClientText(b.conn, []byte(`{"type":"key","kind":"down","key":"a","code":"KeyA","key_code":65,"text":"a"}`))
}

func (b *viewKeyboard) picture() ([]byte, time.Time, error) {
	for {
		_ = b.conn.SetDeadline(time.Now().Add(answerTimeout))
		body, op, err := wsutil.ReadServerData(b.conn)
		at := time.Now()
		if err != nil {
			return nil, at, err
		}
		if op != ws.OpBinary {
			continue
		}
		var head struct {
			Sequence uint64 `json:"sequence"`
		}
		n := int(binary.BigEndian.Uint16(body))
		if err := json.Unmarshal(body[2:2+n], &head); err != nil {
			return nil, at, err
		}
		return body[2+n:], at, wsutil.WriteClientText(b.conn, fmt.Appendf(nil, `{"type":"ack","sequence":%d}`, head.Sequence))
	}
}

func (b *viewKeyboard) close() error {
	return errors.Join(b.conn.Close(), b.post("/hand-back", b.handBack))
}
