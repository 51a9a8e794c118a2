package main

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// variant is one tile of an operation, which gets a symbol of its own.
type variant struct {
	tile  string            // its size, as the symbol's name says it: rows by columns
	asked []asked           // when arguments ask for it
	is    map[string]string // what of the operation's plain loop is a number in that of the tile
	write func(args reg.Register)
}

// asked is a condition on the arguments of an operation.
type asked struct {
	what string // which is the same for the same condition
	not  func(args reg.Register, next operand.LabelRef)
}

// value is the condition that a field is a number.
func (a *asm) value(field string, n int) asked {
	return asked{fmt.Sprint(field, n), func(args reg.Register, next operand.LabelRef) {
		a.CMPQ(a.field(args, field), operand.U8(n))
		a.JNE(next)
	}}
}

// tiled writes the function of an operation, which goes on in that of the tile
// that its arguments ask for, and those of all tiles. A profile then tells the
// tiles apart, and Go calls one function.
func (a *asm) tiled(operation, args string, all []variant) {
	p := a.function(operation, args)
	a.dispatch(operation, p, all, 0)
	a.RET()
	a.writeTiles(operation, args, all)
}

// dispatch jumps to the tile for which all conditions from a level on hold.
// Tiles that begin with the same condition follow each other, and it is tried
// once.
func (a *asm) dispatch(operation string, args reg.Register, all []variant, level int) {
	for len(all) > 0 {
		if len(all[0].asked) == level {
			a.goTo(a.symbol(operation, all[0].tile))
			return // nothing is left to be asked
		}
		first, n := all[0].asked[level], 1
		for n < len(all) && len(all[n].asked) > level && all[n].asked[level].what == first.what {
			n++
		}
		next := a.newLabel("next")
		first.not(args, operand.LabelRef(next))
		a.dispatch(operation, args, all[:n], level+1)
		a.Label(next)
		all = all[n:]
	}
}

// writeTiles writes a function for each tile.
func (a *asm) writeTiles(operation, args string, all []variant) {
	for _, v := range all {
		p := a.begin(a.symbol(operation, v.tile), args)
		if a.tiles == nil {
			a.tiles = map[string]tileOf{}
		}
		a.tiles[a.symbol(operation, v.tile)] = tileOf{operation, v}
		v.write(p)
	}
}

// tileOf is a tile with its operation.
type tileOf struct {
	operation string
	variant
}

// symbol is the name of a tile's function: operation, tile, instruction set.
func (a *asm) symbol(operation, tile string) string { return operation + "_" + tile + "_" + a.file }

// goTo ends a function by going on in another, with the same arguments.
func (a *asm) goTo(symbol string) {
	a.Instruction(&ir.Instruction{Opcode: "JMP", Operands: []operand.Op{operand.LabelRef("·" + symbol + "(SB)")}, IsTerminal: true})
}

// checkJumps fails where a function with a frame goes on in another, which would
// take that for its own.
func checkJumps(file *ir.File) error {
	for _, f := range file.Functions() {
		for _, i := range f.Instructions() {
			if i.Opcode == "JMP" && !i.IsBranch && f.FrameBytes() > 0 {
				return fmt.Errorf("%s has a frame of %d bytes and goes on in another function", f.Name, f.FrameBytes())
			}
		}
	}
	return nil
}

// size is the name of a tile's size.
func size(numbers ...int) string {
	var s []string
	for _, n := range numbers {
		s = append(s, strconv.Itoa(n))
	}
	return strings.Join(s, "x")
}

// plainOf is the plain loop of a tile: that of its operation with the tile's
// numbers.
func (t tileOf) plainOf(operation string) string {
	lines := strings.Split(operation, "\n")
	for i, line := range lines {
		code, comment, commented := strings.Cut(line, " // ")
		// The longest first, for others may be parts of them.
		for _, name := range slices.SortedFunc(maps.Keys(t.is), func(x, y string) int { return cmp.Or(len(y)-len(x), strings.Compare(x, y)) }) {
			number := t.is[name]
			code = regexp.MustCompile(`\b`+regexp.QuoteMeta(name)+`\b`).ReplaceAllLiteralString(code, number)
		}
		lines[i] = code
		if commented {
			lines[i] += " // " + comment
		}
	}
	return strings.Join(lines, "\n")
}
