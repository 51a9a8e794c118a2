package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Chart is a horizontal bar chart of ratios on a logarithmic scale, with a line
// at 1. Its colours follow the reader's colour scheme.
type Chart struct {
	Title  string
	Axis   string   // what the numbers are
	Series []string // at most two
	Bars   []Bar
}

// Bar is one row of a chart: a ratio for every series; NaN draws nothing.
type Bar struct {
	Name   string
	Ratios []float64
}

// The chart's measures, in pixels.
const (
	chartWidth  = 860
	labelWidth  = 190
	valueWidth  = 50
	barHeight   = 9
	barGap      = 2
	rowGap      = 8
	chartTop    = 74
	chartBottom = 34
)

// ticks are where the axis is labelled.
var ticks = []float64{0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50}

// scale maps ratios to the chart's width.
type scale struct{ low, high float64 }

func (c *Chart) scale() scale {
	s := scale{0.5, 2}
	for _, b := range c.Bars {
		for _, r := range b.Ratios {
			if drawn(r) {
				s.low, s.high = min(s.low, r/1.25), max(s.high, r*1.1)
			}
		}
	}
	return s
}

func drawn(r float64) bool { return r > 0 && !math.IsInf(r, 0) }

func (s scale) x(r float64) float64 {
	const plot = chartWidth - labelWidth - valueWidth
	return labelWidth + plot*math.Log(r/s.low)/math.Log(s.high/s.low)
}

// SVG returns the chart.
func (c *Chart) SVG() string {
	s := c.scale()
	row := float64(len(c.Series)*(barHeight+barGap) + rowGap)
	height := chartTop + row*float64(len(c.Bars)) + chartBottom
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" width="%d" height="%.0f" role="img" aria-labelledby="title" font-family="system-ui, sans-serif" font-size="12">
<title id="title">%s</title>
<style>
.ground { fill: #ffffff } .text { fill: #1f2328 } .soft { fill: #59636e } .grid { stroke: #d1d9e0 } .one { stroke: #1f2328 }
.s0 { fill: #0969da } .s1 { fill: #bc4c00 }
@media (prefers-color-scheme: dark) {
.ground { fill: #0d1117 } .text { fill: #f0f6fc } .soft { fill: #9198a1 } .grid { stroke: #3d444d } .one { stroke: #f0f6fc }
.s0 { fill: #58a6ff } .s1 { fill: #f0883e }
}
</style>
<rect class="ground" width="100%%" height="100%%" rx="6"/>
<text class="text" x="16" y="26" font-size="15" font-weight="600">%s</text>
`, chartWidth, height, chartWidth, height, html.EscapeString(c.Title), html.EscapeString(c.Title))
	x := 16.0
	for i, name := range c.Series {
		fmt.Fprintf(&b, `<rect class="s%d" x="%.0f" y="38" width="12" height="12" rx="2"/><text class="soft" x="%.0f" y="48">%s</text>`+"\n", i, x, x+18, html.EscapeString(name))
		x += 40 + 7*float64(len(name))
	}
	bottom := height - chartBottom
	for _, t := range ticks {
		if t < s.low || t > s.high {
			continue
		}
		class, width := "grid", 1.0
		if t == 1 {
			class, width = "one", 1.5
		}
		fmt.Fprintf(&b, `<line class="%s" x1="%.1f" x2="%.1f" y1="%d" y2="%.1f" stroke-width="%g"/><text class="soft" x="%.1f" y="%.1f" text-anchor="middle">%g</text>`+"\n",
			class, s.x(t), s.x(t), chartTop-8, bottom, width, s.x(t), bottom+15, t)
	}
	fmt.Fprintf(&b, `<text class="soft" x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", chartWidth-16, 48.0, html.EscapeString(c.Axis))
	for n, bar := range c.Bars {
		y := chartTop + row*float64(n)
		fmt.Fprintf(&b, `<text class="text" x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", labelWidth-10, y+row/2, html.EscapeString(bar.Name))
		for i, r := range bar.Ratios {
			if !drawn(r) {
				continue
			}
			top := y + float64(i*(barHeight+barGap))
			from, to := min(s.x(1), s.x(r)), max(s.x(1), s.x(r))
			fmt.Fprintf(&b, `<rect class="s%d" x="%.1f" y="%.1f" width="%.1f" height="%d" rx="1.5"/>`, i, from, top, max(to-from, 1), barHeight)
			at, anchor := to+4, "start"
			if r < 1 {
				at, anchor = from-4, "end"
			}
			fmt.Fprintf(&b, `<text class="soft" x="%.1f" y="%.1f" text-anchor="%s" font-size="10">%s</text>`+"\n", at, top+barHeight-0.5, anchor, Ratio(r))
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}
