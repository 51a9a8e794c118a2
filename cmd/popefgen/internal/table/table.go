package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/popefgen/popefgen/internal/printable"
)

// table lays out rows in columns: numbers to the right, text to the left.
type table struct {
	head []string
	rows [][]string
	nums []bool // the column holds nothing but numbers
}

func newTable(head ...string) *table {
	t := &table{head: head, nums: make([]bool, len(head))}
	for i := range t.nums {
		t.nums[i] = true
	}
	return t
}

func (t *table) row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = printable.Line(fmt.Sprint(c)) // a cell is a line, and as wide as it looks
		if s := row[i]; s != "" && s != "-" && (s[0] < '0' || s[0] > '9') {
			t.nums[i] = false
		}
	}
	t.rows = append(t.rows, row)
}

// orDash shows a number that has no meaning when it is zero.
func orDash(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func (t *table) print(w io.Writer) error { return t.write(w, append([][]string{t.head}, t.rows...)) }

// rowsOnly prints a table without its head.
func (t *table) rowsOnly(w io.Writer) error { return t.write(w, t.rows) }

// widest is how wide a column gets at most: a cell that is wider pushes what
// follows it to the right, but makes no other row longer.
const widest = 100

func (t *table) write(w io.Writer, rows [][]string) error {
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

// counted is a number of things, of which one is called one: "1 case", "2 cases".
func counted(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
