package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const (
	minGroup   = 3   // boxes below which a group is not worth a frame
	minRepeats = 12  // boxes below which repetitions are not looked for
	maxPeriod  = 200 // boxes of a block that repeats
	manyBlocks = 10  // alike, that get a group of their own
	maxFound   = 16  // repetitions looked for in one list
	maxList    = 300 // boxes in one group; a longer list is cut
	cutLength  = 100
)

// gather turns lists of boxes into trees of groups: of boxes whose names say
// that they belong together, of blocks that repeat, and, where that leaves a
// list too long to be looked at, of runs of boxes. Every group is a run of an
// order in which boxes can be computed, so that no edges lead from one group
// into another and back.
func gather(d *drawing) {
	follow(d)
	var visit func(*box)
	visit = func(b *box) {
		for _, k := range b.Kids {
			visit(k)
		}
		b.Kids = byName(b.Kids, 0)
		regroup(b)
	}
	visit(d.root)
}

// regroup looks for repetitions and cuts lists that are too long, inside out.
func regroup(b *box) {
	for _, k := range b.Kids {
		if k.Group && len(k.path) > 0 && k.node < 0 {
			regroup(k)
		}
	}
	// Names that make groups tell how a list is made better than repetitions.
	if !slices.ContainsFunc(b.Kids, func(k *box) bool { return k.Family == "group" && len(k.path) > 0 }) {
		b.Kids = repeats(b.Kids)
	}
	b.Kids = cut(b.Kids)
}

// follow reorders the boxes of every list, still in an order in which they can
// be computed: behind a box comes, if it can, one whose name begins alike.
func follow(d *drawing) {
	// What a box inside an operator's graph reads, the operator reads.
	readers := map[*box][]*box{}
	for _, e := range d.edges {
		as, bs := meet(e.from, e.to)
		from, to := as[len(as)-1], bs[len(bs)-1]
		if from != to {
			readers[from] = append(readers[from], to)
		}
	}
	var visit func(*box)
	visit = func(b *box) {
		for _, k := range b.Kids {
			visit(k)
		}
		waits := map[*box]int{}
		index := map[*box]int{}
		for i, k := range b.Kids {
			index[k] = i
			for _, r := range readers[k] {
				waits[r]++
			}
		}
		var ready []int // ascending
		for i, k := range b.Kids {
			if waits[k] == 0 {
				ready = append(ready, i)
			}
		}
		kids := make([]*box, 0, len(b.Kids))
		var last []string
		for len(ready) > 0 {
			best, longest := 0, -1
			for i, r := range ready[:min(len(ready), 64)] {
				if n := common(last, b.Kids[r].path); n > longest {
					best, longest = i, n
				}
			}
			k := b.Kids[ready[best]]
			ready = slices.Delete(ready, best, best+1)
			kids = append(kids, k)
			last = k.path
			for _, r := range readers[k] {
				if waits[r]--; waits[r] == 0 {
					at, _ := slices.BinarySearch(ready, index[r])
					ready = slices.Insert(ready, at, index[r])
				}
			}
		}
		b.Kids = kids
	}
	visit(d.root)
}

func common(a, b []string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// byName makes groups of runs of boxes with the same name at a level.
func byName(kids []*box, level int) []*box {
	var out []*box
	anchors := 0
	for _, k := range kids {
		if k.Family == "anchor" {
			anchors++
		}
	}
	for i := 0; i < len(kids); {
		j := i + 1
		if len(kids[i].path) > level {
			for j < len(kids) && len(kids[j].path) > level && kids[j].path[level] == kids[i].path[level] {
				j++
			}
		}
		run := kids[i:j]
		i = j
		switch {
		case len(run) < minGroup:
			out = append(out, run...)
		case len(run) == len(kids)-anchors: // it says nothing
			out = append(out, byName(run, level+1)...)
		default:
			g := newGroup(run[0].path[level], strings.Join(run[0].path[:level+1], "/"), byName(run, level+1))
			g.path = run[0].path[:level+1]
			if k := g.Kids[0]; len(g.Kids) == 1 && k.Group && k.node < 0 { // one inside of the other: one is enough
				k.Title = g.Title + "/" + k.Title
				g = k
			}
			out = append(out, g)
		}
	}
	return out
}

func newGroup(title, name string, kids []*box) *box {
	return &box{Title: title, Name: name, Family: "group", Group: true, Kids: kids, node: -1}
}

// repeats makes groups of blocks of boxes that do the same again and again.
func repeats(kids []*box) []*box {
	if len(kids) < minRepeats {
		return kids
	}
	numbers := map[string]int{}
	signs := make([]int, len(kids))
	for i, k := range kids {
		s := sign(k)
		if k.Family == "anchor" {
			s += fmt.Sprint(i) // inputs and outputs are no blocks
		}
		if _, ok := numbers[s]; !ok {
			numbers[s] = len(numbers)
		}
		signs[i] = numbers[s]
	}
	budget := maxFound
	return fold(kids, signs, &budget)
}

// fold groups the repetition that covers most, then looks left and right of it.
func fold(kids []*box, signs []int, budget *int) []*box {
	if *budget == 0 {
		return kids
	}
	*budget--
	at, period, times := repetition(signs)
	if times == 0 {
		return kids
	}
	out := slices.Clone(fold(kids[:at], signs[:at], budget))
	var blocks []*box
	for i := range times {
		block := kids[at+i*period : at+(i+1)*period]
		blocks = append(blocks, newGroup(fmt.Sprintf("%s %d of %d", blockKind(block), i+1, times), "", repeats(slices.Clone(block))))
	}
	if times >= manyBlocks {
		blocks = []*box{newGroup(fmt.Sprintf("%d times %s", times, blockKind(blocks[0].Kids)), "", blocks)}
	}
	out = append(out, blocks...)
	end := at + times*period
	return append(out, fold(kids[end:], signs[end:], budget)...)
}

// repetition returns the blocks next to each other and alike that explain most
// of a list: what they cover, times how many they are, so that twice a part of
// two stages counts for less than the blocks that stages are made of. times is
// 0 if there are none.
func repetition(signs []int) (at, period, times int) {
	most := 0
	for p := minGroup; p <= min(maxPeriod, len(signs)/2); p++ {
		run := 0
		for i := p; i <= len(signs); i++ {
			if i < len(signs) && signs[i] == signs[i-p] {
				run++
				continue
			}
			if n := (run + p) / p; n > 1 && n*p*n > most {
				if first := i - run - p; !monotone(signs[first : first+p]) {
					at, period, times, most = first, p, n, n*p*n
				}
			}
			run = 0
		}
	}
	return at, period, times
}

// monotone reports whether a block is itself made of one or two boxes again
// and again, which would say little as a group.
func monotone(signs []int) bool {
	for p := 1; p < minGroup; p++ {
		same := true
		for i := p; i < len(signs); i++ {
			same = same && signs[i] == signs[i-p]
		}
		if same {
			return true
		}
	}
	return false
}

// sign is equal for boxes that do the same, whatever their names.
func sign(b *box) string {
	if len(b.Kids) == 0 {
		return b.Title
	}
	var s strings.Builder
	s.WriteByte('(')
	for _, k := range b.Kids {
		s.WriteString(sign(k))
		s.WriteByte(' ')
	}
	s.WriteByte(')')
	return s.String()
}

// viewKinds are operators that give a view of a tensor, or another type.
var viewKinds = map[string]bool{"Reshape": true, "Transpose": true, "Expand": true, "Cast": true, "Slice": true, "BitCast": true}

// leaves are the operators in boxes, innermost ones.
func leaves(boxes []*box) (all []*box) {
	for _, b := range boxes {
		if b.node >= 0 {
			all = append(all, b)
		}
		all = append(all, leaves(b.Kids)...)
	}
	return all
}

// blockKind says what a block of a network is, as far as its operators tell.
func blockKind(block []*box) string {
	var conv, matrix, attention, recurrent, softmax, concat int
	inside := map[*box]bool{}
	all := leaves(block)
	for _, b := range all {
		inside[b] = true
		switch kind := cmp.Or(b.Detail.Kind, b.Title); {
		case strings.Contains(kind, "Attention"):
			attention++
		case b.Family == "conv":
			conv++
		case b.Family == "matrix":
			matrix++
		case b.Family == "recurrent":
			recurrent++
		case strings.HasPrefix(kind, "Softmax"):
			softmax++
		case strings.HasPrefix(kind, "Concat"):
			concat++
		}
	}
	adds := slices.ContainsFunc(all, func(b *box) bool {
		return b.Title == "Add" || strings.HasPrefix(b.Title, "Add,") || strings.HasSuffix(b.Title, ", Add")
	})
	switch {
	case attention > 0 || softmax > 0 && matrix >= 4:
		return "transformer layer"
	case recurrent > 0:
		return "recurrent layer"
	case conv > 1 && concat > 0:
		return "Conv → Concat block"
	case conv > 1 && adds:
		return "residual block"
	case conv > 0:
		return "convolution block"
	case matrix > 0:
		return "dense layer"
	}
	return "block"
}

// summary counts what is in a group, what there is most of first.
func summary(group []*box) string {
	count := map[string]int{}
	var titles []string
	for _, b := range leaves(group) {
		title, _, _ := strings.Cut(b.Title, " + ")
		if viewKinds[title] {
			continue
		}
		if count[title] == 0 {
			titles = append(titles, title)
		}
		count[title]++
	}
	slices.SortStableFunc(titles, func(a, b string) int { return count[b] - count[a] })
	text := ""
	for _, t := range titles {
		if count[t] > 1 {
			t = fmt.Sprintf("%d %s", count[t], t)
		}
		if text != "" {
			t = " · " + t
		}
		if columns(text+t) > maxColumns-2 {
			return text + " …"
		}
		text += t
	}
	return text
}

// cut makes groups of a list that is too long, if need be of groups again.
func cut(kids []*box) []*box {
	for at := 0; len(kids) > maxList; at = 0 {
		var out []*box
		for len(kids) > 0 {
			n := min(cutLength, len(kids))
			out = append(out, newGroup(fmt.Sprintf("operators %d to %d", at+1, at+n), "", slices.Clone(kids[:n])))
			kids = kids[n:]
			at += n
		}
		kids = out
	}
	return kids
}
