// Package table prints rows in columns.
package table

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/popefgen/popefgen/internal/printable"
)

// Table lays out rows in columns: numbers to the right, text to the left.
type Table struct {
	head []string
	rows [][]string
	nums []bool // the column holds nothing but numbers
}

// New returns a table with a head of so many columns.
func New(head ...string) *Table {
	t := &Table{head: head, nums: make([]bool, len(head))}
	for i := range t.nums {
		t.nums[i] = true
	}
	return t
}

// Row adds a row of as many cells as the head has.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = printable.Line(fmt.Sprint(c)) // a cell is a line, and as wide as it looks
		if s := row[i]; s != "" && s != "-" && (s[0] < '0' || s[0] > '9') {
			t.nums[i] = false
		}
	}
	t.rows = append(t.rows, row)
}

// Numbers makes column i, from 0, one of numbers, also where a word stands among them.
func (t *Table) Numbers(i int) { t.nums[i] = true }

// OrDash shows a number that has no meaning when it is zero.
func OrDash(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// Print prints the head and the rows.
func (t *Table) Print(w io.Writer) error { return t.write(w, append([][]string{t.head}, t.rows...)) }

// RowsOnly prints the table without its head.
func (t *Table) RowsOnly(w io.Writer) error { return t.write(w, t.rows) }

// widest is how wide a column gets at most: a cell that is wider pushes what
// follows it to the right, but makes no other row longer.
const widest = 100

func (t *Table) write(w io.Writer, rows [][]string) error {
	width := make([]int, len(t.head))
	for _, r := range rows {
		for i, c := range r {
			if n := utf8.RuneCountInString(c); n <= widest {
				width[i] = max(width[i], n)
			}
		}
	}
	var b strings.Builder
	for _, r := range rows {
		line := ""
		for i, c := range r {
			pad := strings.Repeat(" ", max(0, width[i]-utf8.RuneCountInString(c)))
			if t.nums[i] {
				c = pad + c
			} else {
				c += pad
			}
			if i > 0 {
				line += "  "
			}
			line += c
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Counted is a number of things, of which one is called one: "1 case", "2 cases".
func Counted(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// Shape shows a shape as the generated code's comments do.
func Shape(shape []int64) string {
	if len(shape) == 0 {
		return "scalar"
	}
	return strings.ReplaceAll(fmt.Sprint(shape), " ", ",")
}
