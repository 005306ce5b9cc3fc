package cookiedb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// This file reads one table of an SQLite database that nobody has open. The format is described
// at https://www.sqlite.org/fileformat.html. A database that does not follow it, or with changes
// that wait in a write-ahead log, is refused.

var errDamaged = errors.New("the database is damaged")

// maxDepth bounds how deep a tree of pages may be: more than any file of an allowed size needs.
const maxDepth = 24

type database struct {
	file     []byte
	pageSize int
	usable   int // bytes of a page that are used
	// unread bounds how many pages are read yet, since the pages of a damaged file may form a ring.
	unread int
}

const headerSize = 100

func openDatabase(file []byte) (*database, error) {
	if len(file) < headerSize || string(file[:16]) != "SQLite format 3\x00" {
		return nil, errors.New("it is not an SQLite database")
	}
	d := &database{file: file, pageSize: int(binary.BigEndian.Uint16(file[16:]))}
	if d.pageSize == 1 {
		d.pageSize = 1 << 16
	}
	d.usable = d.pageSize - int(file[20])
	if d.pageSize < 512 || d.usable < 480 {
		return nil, errDamaged
	}
	// Those of the list of tables are read for each of two tables, all others at most once.
	d.unread = 2 * len(file) / d.pageSize
	if encoding := binary.BigEndian.Uint32(file[56:]); encoding > 1 {
		return nil, errors.New("its text is not UTF-8")
	}
	return d, nil
}

// page returns a page, which are counted from 1, and where its own header begins in it.
func (d *database) page(n uint32) (page []byte, header int, err error) {
	begin := (int64(n) - 1) * int64(d.pageSize)
	d.unread--
	if n == 0 || d.unread < 0 || begin+int64(d.pageSize) > int64(len(d.file)) {
		return nil, 0, errDamaged
	}
	if n == 1 {
		header = headerSize
	}
	return d.file[begin : begin+int64(d.pageSize)], header, nil
}

// rows calls row for each row of the table whose tree has this root.
func (d *database) rows(root uint32, depth int, row func(values []any) error) error {
	const interior, leaf = 5, 13
	page, at, err := d.page(root)
	if err != nil {
		return err
	}
	kind, cells := page[at], int(binary.BigEndian.Uint16(page[at+3:]))
	pointers := at + 8
	if kind == interior {
		pointers = at + 12
	}
	if kind != leaf && kind != interior || depth > maxDepth || pointers+2*cells > len(page) {
		return errDamaged
	}
	for i := range cells {
		cell := int(binary.BigEndian.Uint16(page[pointers+2*i:]))
		if cell+4 > len(page) {
			return errDamaged
		}
		if kind == interior {
			err = d.rows(binary.BigEndian.Uint32(page[cell:]), depth+1, row)
		} else {
			err = d.cell(page[cell:], row)
		}
		if err != nil {
			return err
		}
	}
	if kind == interior {
		return d.rows(binary.BigEndian.Uint32(page[at+8:]), depth+1, row)
	}
	return nil
}

// cell reads the row that begins here, on its page and on those to which it overflows.
func (d *database) cell(b []byte, row func([]any) error) error {
	size, n := varint(b)
	_, m := varint(b[n:]) // its number
	if n == 0 || m == 0 || size > uint64(len(d.file)) {
		return errDamaged
	}
	b = b[n+m:]
	local := int(size)
	if most := d.usable - 35; local > most {
		least := (d.usable-12)*32/255 - 23
		if local = least + (int(size)-least)%(d.usable-4); local > most {
			local = least
		}
	}
	if local > len(b) {
		return errDamaged
	}
	record := b[:local:local]
	for rest := b[local:]; len(record) < int(size); {
		if len(rest) < 4 {
			return errDamaged
		}
		next, _, err := d.page(binary.BigEndian.Uint32(rest))
		if err != nil {
			return err
		}
		record = append(record, next[4:4+min(d.usable-4, int(size)-len(record))]...)
		rest = next
	}
	values, err := parseRecord(record)
	if err != nil {
		return err
	}
	return row(values)
}

// parseRecord returns the values of a row: int64, string, []byte, or nil for what is null or a
// floating-point number.
func parseRecord(b []byte) ([]any, error) {
	size, n := varint(b)
	if n == 0 || size < uint64(n) || size > uint64(len(b)) {
		return nil, errDamaged
	}
	types, content := b[n:size], b[size:]
	var values []any
	for len(types) > 0 {
		kind, n := varint(types)
		if n == 0 {
			return nil, errDamaged
		}
		types = types[n:]
		length := []int{0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0}[min(kind, 11)]
		if kind >= 12 {
			if kind > 2*uint64(len(content))+13 {
				return nil, errDamaged
			}
			length = int(kind-12) / 2
		}
		if length > len(content) {
			return nil, errDamaged
		}
		var value any
		switch v := content[:length]; {
		case kind >= 12 && kind%2 == 0:
			value = v
		case kind >= 12:
			value = string(v)
		case kind == 8, kind == 9:
			value = int64(kind - 8)
		case kind >= 1 && kind <= 6:
			value = integer(v)
		}
		values, content = append(values, value), content[length:]
	}
	return values, nil
}

// integer reads a big-endian number with a sign.
func integer(b []byte) int64 {
	n := int64(int8(b[0]))
	for _, c := range b[1:] {
		n = n<<8 | int64(c)
	}
	return n
}

// varint reads a number of 1 to 9 bytes, and returns its length; 0 if it does not end.
func varint(b []byte) (v uint64, length int) {
	for i, c := range b[:min(9, len(b))] {
		if i == 8 {
			return v<<8 | uint64(c), 9
		}
		if v = v<<7 | uint64(c&0x7f); c < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}

// table calls row for each row of a table, with its values by the names of the columns.
func (d *database) table(name string, row func(map[string]any)) error {
	var root uint32
	var columns []string
	err := d.rows(1, 0, func(values []any) error {
		if len(values) == 5 && values[0] == "table" && values[1] == name {
			page, _ := values[3].(int64)
			statement, _ := values[4].(string)
			root, columns = uint32(page), columnsOf(statement)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if root == 0 {
		return fmt.Errorf("it has no table %s", name)
	}
	return d.rows(root, 0, func(values []any) error {
		named := map[string]any{}
		for i, v := range values[:min(len(values), len(columns))] {
			named[columns[i]] = v
		}
		row(named)
		return nil
	})
}

// columnsOf are the names of the columns in a statement that creates a table, which has no
// commas or brackets except those of the list of columns.
func columnsOf(statement string) []string {
	_, list, _ := strings.Cut(statement, "(")
	var names []string
	for column := range strings.SplitSeq(list, ",") {
		if words := strings.Fields(column); len(words) > 0 {
			names = append(names, strings.Trim(words[0], `"[]`+"`"))
		}
	}
	return names
}
