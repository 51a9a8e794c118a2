package main

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/layered"
)

// Sizes in pixels.
const (
	boxHeight = 40.0
	rowGap    = 46.0
	margin    = 16.0
	charWidth = 7.0 // of names
	boxPad    = 18.0
)

// draw writes the picture: what imports stands above what is imported. An arrow
// that says no more than a chain of others is left out.
func draw(w io.Writer, packages []pkg) error {
	order, err := fromTheTop(packages)
	if err != nil {
		return err
	}
	g := layered.Graph{}
	at := map[string]int{}
	for i, p := range order {
		at[p.path] = i
		g.Widths = append(g.Widths, width(p))
	}
	for i, p := range order {
		for _, imported := range direct(order, at, i) {
			g.Edges = append(g.Edges, [2]int{at[p.path], imported})
		}
	}
	l, err := layered.Lay(g)
	if err != nil {
		return err
	}
	y := make([]float64, len(l.X))
	for row, items := range l.Rows {
		for _, item := range items {
			y[item] = margin + float64(row)*(boxHeight+rowGap) + boxHeight/2
		}
	}
	height := 2*margin + float64(len(l.Rows))*(boxHeight+rowGap) - rowGap
	p := &printer{w: w}
	p.line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif">`, l.Width+2*margin, height)
	p.line(`<title>Which package imports which</title>`)
	p.line(`<style>text{fill:#1c2128;text-anchor:middle}.n{font-size:13px;font-weight:600}.s{font-size:11px}path{fill:none;stroke:#8b949e;stroke-width:1.2}` +
		`.in{fill:#eef2f6;stroke:#8b949e}.out{fill:#dbe9ff;stroke:#3b6fb6}` +
		`@media (prefers-color-scheme:dark){text{fill:#e6edf3}.in{fill:#22272e}.out{fill:#1b3352}}</style>`)
	for e, ends := range g.Edges {
		items := slices.Concat(ends[:1], l.Chains[e], ends[1:])
		var d strings.Builder
		for k, item := range items {
			x, top, bottom := l.X[item]+margin, y[item]-boxHeight/2, y[item]+boxHeight/2
			if k > 0 { // from the row above
				fmt.Fprintf(&d, "C%.0f %.0f %.0f %.0f %.0f %.0f", l.X[items[k-1]]+margin, top-rowGap/2, x, top-rowGap/2, x, top)
			}
			switch {
			case k == 0:
				fmt.Fprintf(&d, "M%.0f %.0f", x, bottom)
			case k < len(items)-1: // a bend is as high as a box
				fmt.Fprintf(&d, "V%.0f", bottom)
			}
		}
		p.line(`<path d="%s"/>`, d.String())
	}
	for i, q := range order {
		class := "out"
		if q.internal() {
			class = "in"
		}
		x := l.X[i] + margin
		p.line(`<rect class="%s" x="%.0f" y="%.0f" width="%.0f" height="%.0f" rx="5"/>`, class, x-width(q)/2, y[i]-boxHeight/2, width(q), boxHeight)
		p.line(`<text class="n" x="%.0f" y="%.0f">%s</text>`, x, y[i]-3, html.EscapeString(q.path))
		p.line(`<text class="s" x="%.0f" y="%.0f">%s</text>`, x, y[i]+13, size(q))
	}
	p.line(`</svg>`)
	return p.err
}

// used leaves out internal packages that no package imports.
func used(packages []pkg) []pkg {
	imported := map[string]bool{}
	for _, p := range packages {
		for _, i := range p.imports {
			imported[i] = imported[i] || roomOf(p.path) != roomOf("internal")
		}
	}
	return slices.DeleteFunc(slices.Clone(packages), func(p pkg) bool { return p.internal() && !imported[p.path] })
}

// printer writes lines until one fails.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func width(p pkg) float64 {
	return charWidth*float64(max(len(p.path), len(size(p))-3)) + boxPad
}

// size says how large a package is, so coarsely that the picture does not change
// with every commit.
func size(p pkg) string {
	if p.lines < 1000 {
		return "below 1,000 lines"
	}
	n := (p.lines + 250) / 500 * 500
	return fmt.Sprintf("about %d,%03d lines", n/1000, n%1000)
}

// fromTheTop orders packages so that none stands before one that imports it.
func fromTheTop(packages []pkg) ([]pkg, error) {
	known := map[string]pkg{}
	for _, p := range packages {
		known[p.path] = p
	}
	var order []pkg
	state := map[string]int{} // 1 while its imports are visited, 2 afterwards
	var visit func(p pkg) error
	visit = func(p pkg) error {
		switch state[p.path] {
		case 1:
			return fmt.Errorf("%s imports itself, through others", p.path)
		case 2:
			return nil
		}
		state[p.path] = 1
		for _, i := range p.imports {
			if q, ok := known[i]; ok {
				if err := visit(q); err != nil {
					return err
				}
			}
		}
		state[p.path] = 2
		order = append(order, p)
		return nil
	}
	for _, p := range packages {
		if err := visit(p); err != nil {
			return nil, err
		}
	}
	slices.Reverse(order)
	return order, nil
}

// direct returns which packages, by index, package i imports that none of its
// other imports imports too, itself or through others.
func direct(order []pkg, at map[string]int, i int) []int {
	through := map[int]bool{}
	var mark func(i int)
	mark = func(i int) {
		for _, p := range order[i].imports {
			if j, ok := at[p]; ok && !through[j] {
				through[j] = true
				mark(j)
			}
		}
	}
	for _, p := range order[i].imports {
		if j, ok := at[p]; ok {
			mark(j)
		}
	}
	var out []int
	for _, p := range order[i].imports {
		if j, ok := at[p]; ok && !through[j] {
			out = append(out, j)
		}
	}
	return out
}
