package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"
)

// printable removes what a terminal could take for a command: escape sequences, control
// characters, direction overrides, invalid UTF-8. The printed text may come from web pages.
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

// cell is the text of a value in a table: printable, and a dash if it is empty.
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

// columns prints values in aligned columns.
type columns struct{ w *tabwriter.Writer }

func newColumns(w io.Writer, header ...any) *columns {
	t := &columns{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if len(header) > 0 {
		t.row(header...)
	}
	return t
}

func (t *columns) row(values ...any) {
	cells := make([]string, len(values))
	for i, v := range values {
		cells[i] = cell(v)
	}
	// The writer keeps its errors until flush.
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

func (t *columns) flush() error { return t.w.Flush() }

func (a *app) printJSON(raw json.RawMessage) error {
	_, err := fmt.Fprintf(a.stdout, "%s\n", bytes.TrimSpace(raw))
	return err
}

func (a *app) printValue(v any) error {
	raw, err := json.Marshal(v)
	return a.printAnswer(raw, err)
}

// printAnswer prints a JSON document, or returns the error if there is one.
func (a *app) printAnswer(raw json.RawMessage, err error) error {
	if err != nil {
		return err
	}
	return a.printJSON(raw)
}

// shown asks the sidecar, and calls show with its answer, or prints the answer itself for --json.
func shown[T any](f clientFlags, a *app, ask func(context.Context, *client) (json.RawMessage, error), show func(T) error) error {
	return f.withSidecar(a, func(ctx context.Context, sidecar *client) error {
		raw, err := ask(ctx, sidecar)
		if err != nil || f.JSON {
			return a.printAnswer(raw, err)
		}
		v, err := read[T](raw)
		if err != nil {
			return err
		}
		return show(v)
	})
}
