package move

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// tfIdf counts n-grams by a tree of their items.
type tfIdf struct {
	op       *graph.TfIdf
	rows     int
	items    int // of a row
	columns  int
	index    graph.DType
	children map[gramStep]int
	column   []int // per node of the tree: where to count, -1 for nowhere
	maxGram  int

	// The run in progress.
	x     indexList
	out   []float32
	parts int
}

// gramStep is an item that follows a node of the tree.
type gramStep struct {
	node int
	item int64
}

func bindTfIdf(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o, x := op.(*graph.TfIdf), in[0]
	last := len(out[0].Shape) - 1
	k := &tfIdf{
		op: o, rows: tensor.Elements(out[0].Shape[:last]), columns: int(out[0].Shape[last]), index: x.DType,
		children: make(map[gramStep]int), column: []int{-1},
	}
	k.items = tensor.Elements(x.Shape)
	if last == 1 {
		k.items = int(x.Shape[1])
	}
	gram := 0
	for n, begin := range o.Counts {
		end := int64(len(o.Pool))
		if n+1 < len(o.Counts) {
			end = o.Counts[n+1]
		}
		size := int64(n + 1)
		for at := begin; at < end; at += size {
			if size >= o.MinGram && size <= o.MaxGram {
				k.insert(o.Pool[at:at+size], int(o.Columns[gram]))
				k.maxGram = n + 1
			}
			gram++
		}
	}
	return k, nil
}

func (k *tfIdf) insert(gram []int64, column int) {
	node := 0
	for _, item := range gram {
		step := gramStep{node, item}
		next, ok := k.children[step]
		if !ok {
			next = len(k.column)
			k.children[step] = next
			k.column = append(k.column, -1)
		}
		node = next
	}
	k.column[node] = column
}

// Scratch implements Kernel.
func (k *tfIdf) Scratch() int { return 0 }

// Run implements Kernel.
func (k *tfIdf) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	k.x, k.out = newIndexList(k.index, in[0]), tensor.View[float32](out[0])
	k.parts = tensor.Cut(p, k.rows, k.columns+50*k.items)
	p.Run(k, k.parts)
	k.x, k.out = indexList{}, nil
	return nil
}

// Do implements Task.
func (k *tfIdf) Do(part int) {
	lo, hi := tensor.Span(k.rows, k.parts, part, 1)
	for row := lo; row < hi; row++ {
		out := k.out[row*k.columns : (row+1)*k.columns]
		clear(out)
		k.count(row*k.items, out)
		if k.op.Presence {
			for i, v := range out {
				out[i] = min(v, 1)
			}
		}
		for i, w := range k.op.Weights {
			out[i] *= float32(w)
		}
	}
}

// count counts the n-grams in the row that begins at item number first.
func (k *tfIdf) count(first int, out []float32) {
	// No distance beyond the row's length finds anything but single items.
	most := min(int(min(k.op.MaxSkip, int64(k.items)))+1, max(k.items, 1))
	if k.maxGram == 0 {
		return
	}
	for distance := 1; distance <= most; distance++ {
		// Single items have no distance: they count once.
		shortest := 1
		if distance > 1 {
			shortest = 2
		}
		for start := range k.items {
			node := 0
			for n, at := 1, start; n <= k.maxGram && at < k.items; n, at = n+1, at+distance {
				next, ok := k.children[gramStep{node, int64(k.x.at(first + at))}]
				if !ok {
					break
				}
				node = next
				if c := k.column[node]; c >= 0 && n >= shortest {
					out[c]++
				}
			}
		}
	}
}
