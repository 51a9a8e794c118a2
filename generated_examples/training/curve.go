package main

import (
	"fmt"
	"math"
	"strings"
)

// curve draws numbers as bars, at most so many columns wide, on a logarithmic scale from the smallest to the largest mean of a
// column.
func curve(values []float32, columns, rows int) string {
	columns = min(columns, len(values))
	logs := make([]float64, columns)
	low, high := math.Inf(1), math.Inf(-1)
	for c := range logs {
		part := values[c*len(values)/columns : (c+1)*len(values)/columns]
		sum := 0.0
		for _, v := range part {
			sum += float64(v)
		}
		logs[c] = math.Log10(max(sum/float64(len(part)), 1e-9))
		low, high = min(low, logs[c]), max(high, logs[c])
	}
	blocks := []rune(" ▁▂▃▄▅▆▇█")
	var b strings.Builder
	for row := rows - 1; row >= 0; row-- {
		label := ""
		switch row {
		case rows - 1:
			label = fmt.Sprintf("%.4f", math.Pow(10, high))
		case 0:
			label = fmt.Sprintf("%.4f", math.Pow(10, low))
		}
		fmt.Fprintf(&b, "%8s ", label)
		for _, l := range logs {
			height := 1 // eighths of a row, of which the smallest column has one
			if high > low {
				height += int((l - low) / (high - low) * float64(8*rows-1))
			}
			b.WriteRune(blocks[max(0, min(8, height-8*row))])
		}
		b.WriteByte('\n')
	}
	return b.String()
}
