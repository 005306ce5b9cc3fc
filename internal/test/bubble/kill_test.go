package bubble

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// TestOnlyWhatWasInThePipeOutlivesALauncher shows that the checker tells a message that was in
// the pipe when its launcher was killed from one that is written later.
func TestOnlyWhatWasInThePipeOutlivesALauncher(t *testing.T) {
	const deadWrites = ", and its launcher is dead"
	const anotherBegan = ", and the launcher after its own has begun"
	for _, c := range []struct {
		name   string
		when   func(w *world, h *host)
		token  int
		broken string // how the promise is broken; empty: it is not
	}{
		{"while the launcher lives", func(*world, *host) {}, 3, ""},
		{"the launcher is killed before the browser reads", func(_ *world, h *host) { h.living().die() }, 3, ""},
		{"the same under a lower token", func(_ *world, h *host) { h.living().die() }, 2, "alpha writes under token 2 of p1 after token 3 was granted"},
		{"after that instant", func(_ *world, h *host) {
			h.living().die()
			time.Sleep(time.Nanosecond)
		}, 3, deadWrites},
		{"the next launcher has begun", func(w *world, h *host) {
			h.living().die()
			w.begin(h)
		}, 3, anotherBegan},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1, "")
				h := w.hosts[0]
				w.begin(h)
				time.Sleep(20 * time.Second)
				w.check.of("p1").generation = 3
				b := &fakeChrome{w: w, host: h, profile: "p1", token: 3, by: h.living().life, cdp: newCDP()}
				if _, _, err := b.linkTo(b.by); err != nil {
					t.Fatal(err)
				}
				n := b.linked(b.by)
				synctest.Wait() // until the browser waits for Wrote: it does not read the message yet
				text := fmt.Sprintf(`{"id":1,"method":"Target.getTargetInfo","params":{"targetId":"%s%d"}}`, written, c.token)
				if _, err := unix.Write(n.commands[0], append([]byte(text), 0)); err != nil {
					t.Fatal(err)
				}
				c.when(w, h)
				n.Wrote()
				synctest.Wait()
				var want []string
				switch c.broken {
				case "":
				case deadWrites, anotherBegan:
					want = []string{fmt.Sprintf("%s: a message of p1 under token %d reaches %v%s", staleWrites, c.token, b, c.broken)}
				default:
					want = []string{staleWrites + ": " + c.broken}
				}
				w.mu.Lock()
				got := slices.Clone(w.wrong)
				w.mu.Unlock()
				if !slices.Equal(got, want) {
					t.Errorf("the checker says %q, want %q", got, want)
				}
				n.hangUp()
				_, _ = unix.Close(n.commands[0]), unix.Close(n.events[0])
				w.end()
			})
		})
	}
}
