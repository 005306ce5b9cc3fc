// Package fencedservice is an example of a service of the user's own that takes part in
// the fencing: it refuses what comes under a lower token than it has seen already. A test
// runs it; docs/restrictions.md explains it.
package fencedservice

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
)

// Service takes writes of accounts. Its zero value is ready for use.
type Service struct {
	mu      sync.Mutex
	highest map[string]uint64   // token by account
	orders  map[string][]string // what was written, by account
}

// ServeHTTP writes an order, the value of the query's "order", for the account that the
// path names. It answers 400 without a token, and 409 if a higher one was there before.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, "<!doctype html><title>orders</title>")
		return
	}
	// Each account has one profile, and tokens of one profile only grow.
	account := r.URL.Path
	token, err := strconv.ParseUint(r.Header.Get("Leasehold-Token"), 10, 64)
	if err != nil {
		http.Error(w, "this service wants a Leasehold-Token", http.StatusBadRequest)
		return
	}
	// The comparison and the write are one step.
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.highest == nil {
		s.highest, s.orders = map[string]uint64{}, map[string][]string{}
	}
	if token < s.highest[account] {
		http.Error(w, fmt.Sprintf("token %d superseded by %d", token, s.highest[account]), http.StatusConflict)
		return
	}
	s.highest[account] = token
	s.orders[account] = append(s.orders[account], r.URL.Query().Get("order"))
	w.WriteHeader(http.StatusCreated)
}

// Orders are what was written for an account.
func (s *Service) Orders(account string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.orders[account]...)
}
