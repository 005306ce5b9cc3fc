package sites

import (
	"testing"
	"testing/synctest"
	"time"

	"leasehold/checkpoint/site"
)

// TestLaunchersCountTogether: what sessions of two launchers had is one sum, also if the store was
// away meanwhile, and if the site gets a file with another name later. Nobody who counts waits.
func TestLaunchersCountTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cart = "POST https://shop.example/cart"
		m := newMemory()
		a, stopA := launcher(t, m, "")
		defer stopA()
		b, stopB := launcher(t, m, "")
		defer stopB()
		count := func(s *Shelf, account string) {
			s.Count(map[string]site.Tally{"shop-example": {cart: {Sessions: 1, Unchanged: 1, Accounts: []string{account}, LastAt: time.Now()}}})
		}
		begun := time.Now()
		for range 10 {
			count(a, "ann")
			count(b, "bob")
		}
		synctest.Wait() // of a write that the store does not answer nobody knows whether it was made
		m.change(func() { m.away = true })
		count(a, "cid")
		if !time.Now().Equal(begun) {
			t.Error("who counts waits")
		}
		time.Sleep(time.Minute)
		m.change(func() { m.away = false })
		time.Sleep(time.Minute)
		f := file(t, "shop", "/search")
		f.Name = "lamps"
		if _, err := b.Put(t.Context(), f, 0, "ann", time.Now()); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"shop-example", "lamps"} {
			sum, err := b.Counts(t.Context(), name)
			if c := sum[cart]; err != nil || c.Sessions != 21 || c.Unchanged != 21 || len(c.Accounts) != 3 {
				t.Errorf("%s: %+v, %v", name, sum, err)
			}
		}
	})
}
