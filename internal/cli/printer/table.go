package printer

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Table writes rows in aligned columns. Rows can be added after a Flush. Columns never shrink, so that a
// table that grows over time stays readable.
type Table struct {
	w      io.Writer
	header []string
	widths []int
	rows   [][]string
	begun  bool
}

// gap is the number of spaces between two columns.
const gap = 3

// NewTable returns a table with these columns. A table without rows writes nothing, not even the header.
func NewTable(w io.Writer, columns ...string) *Table {
	return &Table{w: w, header: columns, widths: make([]int, len(columns))}
}

// Row adds a row. It replaces line breaks in cells with spaces.
func (t *Table) Row(cells ...string) {
	for i := range cells {
		cells[i] = strings.TrimRight(strings.ReplaceAll(cells[i], "\n", " "), " ")
	}
	t.rows = append(t.rows, cells)
}

// Flush writes the rows that were added since the last Flush.
func (t *Table) Flush() error {
	if len(t.rows) == 0 {
		return nil
	}
	rows := t.rows
	if !t.begun {
		rows = append([][]string{t.header}, rows...)
	}
	for _, row := range rows {
		for i, cell := range row {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	var out strings.Builder
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			line += fmt.Sprintf("%-*s", t.widths[i]+gap, cell)
		}
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	t.rows, t.begun = nil, true
	_, err := io.WriteString(t.w, out.String())
	return err
}
