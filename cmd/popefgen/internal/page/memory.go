package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Sizes of the memory chart in pixels.
const (
	chartWidth  = 1000.0
	chartHeight = 300.0
	chartLeft   = 74.0
	chartTop    = 10.0
	useHeight   = 90.0 // of the chart of how much is in use
	useGap      = 34.0
	chartFoot   = 34.0
)

// bytesText is a size for people.
func bytesText(n int64) string { return humanize.IBytes(uint64(max(0, n))) }

// node names a node of an executable.
type node struct {
	graph graph.GraphID
	index int
}

// memoryChart draws where the buffers of a program lie in the arena and how
// long: steps to the right, offsets upwards; below it how much is in use.
// boxes are those of a drawing, for the links to it.
func memoryChart(p *cpu.Program, exe *graph.Executable, boxes map[node]*box) string {
	var s strings.Builder
	steps := float64(max(1, len(p.Steps)))
	arena := float64(max(1, p.ArenaBytes))
	plot := chartWidth - chartLeft - 10
	x := func(step int) float64 { return round(chartLeft + float64(step)/steps*plot) }
	y := func(offset int64) float64 { return round(chartTop + chartHeight*(1-float64(offset)/arena)) }
	total := chartTop + chartHeight + useGap + useHeight + chartFoot
	fmt.Fprintf(&s, "<svg class=\"chart\" viewBox=\"0 0 %s %s\" role=\"img\" aria-label=\"%s\">\n", px(chartWidth), px(total),
		text(fmt.Sprintf("memory of program %d over its steps: %d buffers in an arena of %s", p.Index, len(p.Buffers), bytesText(p.ArenaBytes))))
	for _, tick := range ticks(p.ArenaBytes, 4) {
		fmt.Fprintf(&s, "<path class=\"grid\" d=\"M%s,%sH%s\"/><text class=\"tick\" x=\"%s\" y=\"%s\" text-anchor=\"end\">%s</text>\n",
			px(chartLeft), px(y(tick)), px(chartWidth-10), px(chartLeft-6), px(y(tick)+4), text(bytesText(tick)))
	}
	use := make([]int64, len(p.Steps)+1)
	drawn := drawnBuffers(p.Buffers)
	for i := range p.Buffers {
		u := &p.Buffers[i]
		first, last := max(0, u.First), min(len(p.Steps)-1, u.Last)
		if last < first {
			continue
		}
		use[first] += u.Bytes
		use[last+1] -= u.Bytes
		if !drawn[i] {
			continue
		}
		writer := &p.Steps[first]
		family, title, link := "other", clip(strings.Join(u.Names[:min(len(u.Names), 8)], ", ")), ""
		if u.Tensors == nil {
			family, title = "scratch", "scratch of "+stepName(writer)
		} else if b := boxes[node{writer.Graph, writer.Source}]; b != nil && writer.Kind == cpu.Compute {
			family = b.Family
		} else if writer.Kind == cpu.CopyIn || writer.Kind == cpu.CopyOut {
			family = "anchor"
		}
		if b := boxes[node{writer.Graph, writer.Source}]; b != nil && writer.Stream <= 0 && writer.Op != "" {
			link = fmt.Sprintf(" data-go=\"%d\"", b.ID)
		}
		top, left := y(u.Offset+u.Bytes), x(first)
		fmt.Fprintf(&s, "<rect class=\"buffer f-%s\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\"%s><title>%s</title></rect>\n",
			family, px(left), px(top), px(round(max(0.6, x(last+1)-left))), px(round(max(0.6, y(u.Offset)-top))), link,
			text(fmt.Sprintf("%s\n%s at %s, steps %d to %d", title, bytesText(u.Bytes), bytesText(u.Offset), u.First, u.Last)))
	}
	// Below: the sum of what is in use at each step.
	var sum, peak int64
	at := 0
	for i := range p.Steps {
		if sum += use[i]; sum > peak {
			peak, at = sum, i
		}
		use[i] = sum
	}
	base := chartTop + chartHeight + useGap + useHeight
	var line strings.Builder
	fmt.Fprintf(&line, "M%s,%s", px(chartLeft), px(base))
	for i := range p.Steps {
		v := round(base - useHeight*float64(use[i])/float64(max(1, peak)))
		fmt.Fprintf(&line, "V%sH%s", px(v), px(x(i+1)))
	}
	fmt.Fprintf(&s, "<path class=\"use\" d=\"%sV%sz\"/>\n", line.String(), px(base))
	if len(p.Steps) > 0 && peak > 0 {
		mid, anchor := x(at)+4, "start"
		if mid > chartWidth*0.7 {
			mid, anchor = x(at+1)-4, "end"
		}
		fmt.Fprintf(&s, "<text class=\"tick peak\" x=\"%s\" y=\"%s\" text-anchor=\"%s\">%s</text>\n", px(mid), px(base-useHeight-6), anchor,
			text(fmt.Sprintf("peak: %s in use at step %d, %s", bytesText(peak), at, elide(stepName(&p.Steps[at])))))
	}
	fmt.Fprintf(&s, "<text class=\"tick\" x=\"%s\" y=\"%s\" text-anchor=\"end\">%s</text><text class=\"tick\" x=\"%s\" y=\"%s\" text-anchor=\"end\">0 B</text>\n",
		px(chartLeft-6), px(base-useHeight+4), text(bytesText(peak)), px(chartLeft-6), px(base))
	for _, tick := range ticks(int64(len(p.Steps)), 8) {
		fmt.Fprintf(&s, "<text class=\"tick\" x=\"%s\" y=\"%s\" text-anchor=\"middle\">%d</text>", px(x(int(tick))), px(base+16), tick)
	}
	fmt.Fprintf(&s, "<text class=\"tick\" x=\"%s\" y=\"%s\" text-anchor=\"end\">step</text>\n", px(chartLeft-6), px(base+16))
	s.WriteString("</svg>\n")
	return s.String()
}

// maxBuffers of a program are drawn.
const maxBuffers = 4000

// drawnBuffers says which buffers are drawn: the largest, where there are very
// many.
func drawnBuffers(buffers []cpu.Buffer) []bool {
	order := make([]int, len(buffers))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(buffers[j].Bytes, buffers[i].Bytes) })
	drawn := make([]bool, len(buffers))
	for _, i := range order[:min(len(order), maxBuffers)] {
		drawn[i] = true
	}
	return drawn
}

func round(x float64) float64 { return math.Round(x*10) / 10 }

func stepName(s *cpu.Step) string {
	what := s.Op
	if what == "" {
		what = s.Kind.String()
	}
	return strings.TrimSpace(what + " " + clip(s.Name))
}

// ticks returns 0 and up to n round numbers up to most.
func ticks(most int64, n int64) []int64 {
	out := []int64{0}
	if most <= 0 {
		return out
	}
	step := int64(1)
	factors := []int64{2, 5, 10}
	if most > 4096 { // bytes: in powers of two
		factors = []int64{2, 4, 8, 16}
	}
	for base := int64(1); most/step > n; {
		for _, f := range factors {
			if step = base * f; most/step <= n {
				break
			}
		}
		base = step
	}
	for v := step; v <= most; v += step {
		out = append(out, v)
	}
	return out
}

// programCharts returns the charts of all programs that need memory.
func programCharts(plan *cpu.Plan, exe *graph.Executable, boxes map[node]*box) (all []chart) {
	programs := slices.Clone(plan.Programs)
	slices.SortStableFunc(programs, func(a, b cpu.Program) int { return cmp.Compare(b.ArenaBytes, a.ArenaBytes) })
	for i := range programs {
		if p := &programs[i]; p.ArenaBytes > 0 {
			left := ""
			if len(p.Buffers) > maxBuffers {
				left = fmt.Sprintf(", of which the %d largest are drawn", maxBuffers)
			}
			all = append(all, chart{Title: fmt.Sprintf("Program %d %s: %d steps, %d buffers%s, %s", p.Index, printable(p.Name), len(p.Steps), len(p.Buffers), left, bytesText(p.ArenaBytes)),
				SVG: trusted(memoryChart(p, exe, boxes))})
		}
	}
	return all
}
