package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"
)

// printable takes out what a terminal could obey instead of show: escape
// sequences, control characters, direction overrides, invalid UTF-8. What is
// printed may come from web pages.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return -1
		default:
			return r
		}
	}, s)
}

// cell is a value in a table: printable, and a dash where there is nothing.
func cell(v any) string {
	if t, ok := v.(time.Time); ok {
		if t.IsZero() {
			return "-"
		}
		return t.UTC().Format(time.RFC3339)
	}
	if s := printable(fmt.Sprint(v)); s != "" {
		return s
	}
	return "-"
}

// table prints aligned columns.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, header ...any) *table {
	t := &table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if len(header) > 0 {
		t.row(header...)
	}
	return t
}

func (t *table) row(values ...any) {
	cells := make([]string, len(values))
	for i, v := range values {
		cells[i] = cell(v)
	}
	// Errors stay in the writer until flush.
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

func (t *table) flush() error { return t.w.Flush() }
