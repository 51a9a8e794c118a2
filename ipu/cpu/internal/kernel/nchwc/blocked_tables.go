package nchwc

import (
	"runtime"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/conv"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/window"
	"github.com/popefgen/popefgen/ipu/graph"
)

// blockedConvTableBytes returns the bytes of the tables of a [Conv]: a line has as
// many elements as vectors have lanes.
func blockedConvTableBytes(op graph.Op, in, out []graph.TensorType) int64 {
	w, x := in[1], in[0]
	line := budget.Mul(max(1, op.(*Conv).Lanes), tensor.AtLeastOne(x.Shape[max(0, x.Rank()-2):]))
	return budget.Add(budget.Mul(4, conv.WindowElements(w)), budget.Mul(8, w.Shape[w.Rank()-1]), budget.Mul(4, budget.Add(line, 64)),
		conv.ConvTableBytes(&op.(*Conv).Conv, in, out))
}

// FusedTilesTableBytes returns the bytes of the tables of a [FusedTiles]: what is
// kept of each tile of an image, and what tables returns for the kernels of every shape of a
// tile, for every worker. Tiles are few: one takes as much memory as a cache holds.
func FusedTilesTableBytes(tables tensor.Declared, o *FusedTiles, in []graph.TensorType) int64 {
	types, err := o.Types(in)
	if err != nil || len(types) == 0 {
		return 0 // NewFusedTiles says so
	}
	result := types[len(types)-1][len(types[len(types)-1])-1]
	blocks, rows := max(1, (o.Channels+o.Lanes-1)/max(1, o.Lanes)), int64(1)
	if o.Rows > 0 {
		rows = (tensor.Dimension(result, 2) + o.Rows - 1) / o.Rows
	}
	tiles := budget.Mul(max(1, rows), (blocks+max(1, o.Blocks)-1)/max(1, o.Blocks))
	perTile := int64(0)
	for _, t := range types {
		perTile += 4<<10 + int64(512*len(t))
	}
	total := budget.Mul(tiles, perTile)
	if total > maxTiles*perTile {
		return total
	}
	c := &fusedTiles{op: o}
	if c.cut(types, result) != nil {
		return total // NewFusedTiles says so
	}
	slots := int64(max(1, min(tensor.MaxParts, c.images*len(c.tiles), runtime.GOMAXPROCS(0))))
	for _, s := range c.shapes {
		for m, op := range s.ops {
			n := len(s.types[m]) - 1
			total = budget.Add(total, budget.Mul(slots, tables(op, s.types[m][:n], s.types[m][n:])))
		}
	}
	return total
}

// maxTiles is the most tiles that FusedTilesTableBytes looks at one by one.
const maxTiles = 1 << 16

// blockedPoolTableBytes are those of the pooling.
func blockedPoolTableBytes(op graph.Op, in, out []graph.TensorType) int64 {
	return window.PoolTableBytes(op.(*Pool).Pool, in, out)
}

// blockedResizeTableBytes are those of the resizing.
func blockedResizeTableBytes(op graph.Op, in, out []graph.TensorType) int64 {
	return window.ResizeTableBytes(&op.(*Resize).Resize, in, out)
}
