// Package report writes what was measured: as Markdown tables between markers
// of a document, and as charts.
package report

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// Table is a Markdown table whose first column is text and whose others are
// numbers, or text that stands for one.
type Table struct{ rows [][]string }

// NewTable starts a table with these column titles.
func NewTable(titles ...string) *Table { return &Table{[][]string{titles}} }

// Row adds a row. It must have as many cells as the table has columns.
func (t *Table) Row(cells ...string) {
	if len(cells) != len(t.rows[0]) {
		panic(fmt.Sprintf("report: a row of %d cells in a table of %d columns", len(cells), len(t.rows[0])))
	}
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(c, "|", "\\|")
	}
	t.rows = append(t.rows, cells)
}

// String returns the table in Markdown, in columns that line up as text too.
func (t *Table) String() string {
	width := make([]int, len(t.rows[0]))
	for _, r := range t.rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c), 3)
		}
	}
	var b strings.Builder
	for n, r := range t.rows {
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if i == 0 {
				fmt.Fprintf(&b, "| %s%s ", c, pad)
			} else {
				fmt.Fprintf(&b, "| %s%s ", pad, c)
			}
		}
		b.WriteString("|\n")
		if n > 0 {
			continue
		}
		for i, w := range width {
			if i == 0 {
				fmt.Fprintf(&b, "|%s", strings.Repeat("-", w+2))
			} else {
				fmt.Fprintf(&b, "|%s:", strings.Repeat("-", w+1))
			}
		}
		b.WriteString("|\n")
	}
	return b.String()
}

// Missing stands for a number that was not measured.
const Missing = "–"

// Time formats nanoseconds as microseconds with three digits that count, or
// Missing for NaN.
func Time(ns float64) string { return digits(ns / 1e3) }

// Ratio formats a ratio, or Missing for NaN.
func Ratio(r float64) string { return digits(r) }

// Share formats a share of something with two decimals, or Missing for NaN and
// infinities.
func Share(x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return Missing
	}
	return fmt.Sprintf("%.2f", x)
}

// digits formats x with at least three digits that count, two at most behind
// the point unless x is below a tenth.
func digits(x float64) string {
	switch a := math.Abs(x); {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return Missing
	case a >= 100:
		return fmt.Sprintf("%.0f", x)
	case a >= 10:
		return fmt.Sprintf("%.1f", x)
	case a >= 0.1 || a == 0:
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.2g", x)
}
