package printer

import (
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/berth-run/berth/internal/cli/terminal"
)

// Table writes rows in aligned columns. Rows can be added after a Flush. Columns never shrink, so that a
// table that grows over time stays readable.
type Table struct {
	w      io.Writer
	header []string
	widths []int
	rows   [][]string
	begun  bool
	// color says that styles are used. styles has the style of a cell's text, by column.
	color  bool
	styles map[int]func(cell string, row []string) terminal.Style
}

// gap is the number of spaces between two columns.
const gap = 3

// NewTable returns a table with these columns. A table without rows writes nothing, not even the header. If w is a
// terminal with colors, the header is bold.
func NewTable(w io.Writer, columns ...string) *Table {
	return &Table{w: w, header: columns, widths: make([]int, len(columns)), color: terminal.Of(w).Color}
}

// Color sets whether the table has colors. A table that does not write to the terminal itself needs it.
func (t *Table) Color(color bool) { t.color = color }

// Style sets which style a cell of the column has, by its text and its row. Only a terminal with colors shows it.
func (t *Table) Style(column string, of func(cell string, row []string) terminal.Style) {
	if t.styles == nil {
		t.styles = map[int]func(string, []string) terminal.Style{}
	}
	t.styles[slices.Index(t.header, column)] = of
}

// StyleText is Style for a style that depends on the text only. A table without the column stays as it is.
func (t *Table) StyleText(column string, of func(cell string) terminal.Style) {
	if slices.Contains(t.header, column) {
		t.Style(column, func(cell string, _ []string) terminal.Style { return of(cell) })
	}
}

// Row adds a row. It replaces line breaks and other control characters in cells with spaces. A cell may contain text
// from a container or a registry, and a terminal obeys control characters.
func (t *Table) Row(cells ...string) {
	for i := range cells {
		cells[i] = strings.TrimRight(strings.Map(harmless, cells[i]), " ")
	}
	t.rows = append(t.rows, cells)
}

// harmless replaces control characters.
func harmless(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
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
	for n, row := range rows {
		last := len(row) - 1
		for last >= 0 && row[last] == "" {
			last--
		}
		for i := range last + 1 {
			text := strings.TrimLeft(row[i], " ") // a cell may be indented
			out.WriteString(row[i][:len(row[i])-len(text)])
			out.WriteString(t.style(i, row, !t.begun && n == 0).Paint(t.color, text))
			if i < last {
				out.WriteString(strings.Repeat(" ", t.widths[i]+gap-utf8.RuneCountInString(row[i])))
			}
		}
		out.WriteByte('\n')
	}
	t.rows, t.begun = nil, true
	_, err := io.WriteString(t.w, out.String())
	return err
}

// style returns the style of a cell of the i-th column.
func (t *Table) style(i int, row []string, header bool) terminal.Style {
	if header {
		return terminal.Head
	}
	if of := t.styles[i]; of != nil {
		return of(row[i], row)
	}
	return ""
}
