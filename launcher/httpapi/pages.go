package httpapi

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"leasehold/launcher/api"
	"leasehold/lease"
)

// maxPage is the most items in one answer, and the number if the request names none.
const maxPage = 1000

// maxPageBytes is the size of an answer with a list, in bytes, past which it gets fewer items.
const maxPageBytes = 16 << 20

// order is how a list is sorted, as far as its pages need it. The position of an item is a
// text, which the cursor of the next page carries.
type order[T any] struct {
	position func(T) string
	// after tells whether an item comes after a position, even if the item at that position is
	// gone.
	after func(T, string) bool
}

// ascending is the order of a list whose positions rise.
func ascending[T any](position func(T) string) order[T] {
	return order[T]{position, func(v T, at string) bool { return position(v) > at }}
}

// The orders of the lists.
var (
	sessionOrder = ascending(func(s api.Session) string { return fmt.Sprintf("%s %s", fixedTime(s.AcquiredAt), s.SessionID) })
	// historyOrder is the order of the event stream, in which times need not rise. Only the
	// oldest events are ever removed, so whatever is there comes after an event that is gone.
	historyOrder = order[lease.Event]{
		func(e lease.Event) string {
			return fmt.Sprintf("%d %d %s %s %s", e.Token, e.Sequence, fixedTime(e.At), e.Event, e.BlockedTaskID)
		},
		func(lease.Event, string) bool { return true },
	}
	// bundleOrder has the newest bundle first. A bundle that is gone was probably near the end,
	// since retention removes the oldest.
	bundleOrder = order[api.Bundle]{bundlePosition, func(b api.Bundle, at string) bool { return bundlePosition(b) < at }}
)

func bundlePosition(b api.Bundle) string {
	return fmt.Sprintf("%020d %s %s", b.Token, fixedTime(b.At), b.EvidenceID)
}

// fixedTime writes a time as a text that sorts as the times do.
func fixedTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000000") }

// list is an answer with several items: one page of them, and the cursor of the next page,
// which is null at the end.
type list[T any] struct {
	Items []T     `json:"items"`
	Next  *string `json:"next"`
	// Truncated says of a history that its oldest events have been removed.
	Truncated bool `json:"truncated,omitempty"`
}

// page returns the page that limit and next in the query ask for, out of all items in their
// order.
func page[T any](c *call, all []T, o order[T]) (list[T], error) {
	limit, at, err := c.pageAsked()
	if err != nil {
		return list[T]{}, err
	}
	if at != nil {
		here := slices.IndexFunc(all, func(v T) bool { return o.position(v) == *at })
		if here < 0 {
			if here = slices.IndexFunc(all, func(v T) bool { return o.after(v, *at) }) - 1; here < -1 {
				here = len(all) - 1
			}
		}
		all = all[here+1:]
	}
	answer := list[T]{Items: orEmpty(all)}
	if len(all) > limit {
		answer.Items = all[:limit]
	}
	if answer.Items, err = fitting(answer.Items); err != nil {
		return list[T]{}, err
	}
	if n := len(answer.Items); n < len(all) {
		next := base64.RawURLEncoding.EncodeToString([]byte(o.position(all[n-1])))
		answer.Next = &next
	}
	return answer, nil
}

// fitting returns the first of the items, as many as an answer may have, and at least one.
func fitting[T any](items []T) ([]T, error) {
	size := 0
	for i, item := range items {
		b, err := encode(item)
		if err != nil {
			return nil, fmt.Errorf("answer: %w", err)
		}
		if size += len(b); size > maxPageBytes && i > 0 {
			return items[:i], nil
		}
	}
	return items, nil
}

// pageAsked reads limit and next. The position is nil for the first page.
func (c *call) pageAsked() (limit int, at *string, err error) {
	if c.queryErr != nil {
		return 0, nil, api.Invalid("", "the query cannot be read: %v", c.queryErr)
	}
	limit = maxPage
	if said, ok := c.query["limit"]; ok {
		if limit, err = strconv.Atoi(said[0]); err != nil || limit < 1 || limit > maxPage || len(said) > 1 {
			return 0, nil, api.Invalid("limit", "%.40q: want a number from 1 to %d, once", said[0], maxPage)
		}
	}
	if said, ok := c.query["next"]; ok {
		position, err := base64.RawURLEncoding.Strict().DecodeString(said[0])
		if err != nil || len(position) == 0 || len(said) > 1 {
			return 0, nil, api.Invalid("next", "%.40q: want the next of the page before, once", said[0])
		}
		text := string(position)
		at = &text
	}
	return limit, at, nil
}

func answerPage[T any](o order[T]) func(*call, []T) error {
	return func(c *call, all []T) error {
		answer, err := page(c, all, o)
		if err != nil {
			return err
		}
		return c.json(http.StatusOK, answer)
	}
}

// answerHistory answers with one page of a profile's events.
func answerHistory(c *call, events []lease.Event) error {
	answer, err := page(c, events, historyOrder)
	if err != nil {
		return err
	}
	answer.Truncated = truncated(events)
	return c.json(http.StatusOK, answer)
}

// truncated tells whether the oldest events of a history are missing: a profile's first
// transition has the number 1, and no conflict or late write can come before it.
func truncated(events []lease.Event) bool {
	for _, e := range events {
		if e.Event != lease.EventConflict && e.Event != lease.EventLateWrite {
			return e.Sequence > 1
		}
	}
	return len(events) > 0
}
