package main

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vec is a vector register.
type vec = reg.VecVirtual

// constants is a table of vectors in memory, all of whose lanes are equal.
type constants struct {
	table operand.Mem
	at    map[any]int // by the bits of all lanes, or a ramp's first number

	equal map[int]bool // where vectors of equal lanes are

	held map[uint32]vec // in registers, within a loop
	used map[uint32]int // how often, where that is being counted
}

// rampFrom is the key of a ramp.
type rampFrom uint32

// constant returns a vector of v, which must not be written to.
func (a *asm) constant(v float32) operand.Op { return a.bits(math.Float32bits(v)) }

// bits returns a vector of numbers of 32 bits, which must not be written to.
func (a *asm) bits(v uint32) operand.Op {
	c := a.table()
	if c.used != nil {
		c.used[v]++
	}
	if r, ok := c.held[v]; ok {
		return r
	}
	m := a.stored(v, func(int) uint32 { return v })
	c.equal[m.Disp] = true
	return m
}

// table returns the constants. The masks of the first 0 to lanes elements
// begin in its first two vectors.
func (a *asm) table() *constants {
	if a.consts == nil {
		a.consts = &constants{table: a.StaticGlobal("lanes"), at: map[any]int{}, equal: map[int]bool{}}
		a.DataAttributes(attr.RODATA | attr.NOPTR)
		for i := range 2 * a.lanes {
			a.AppendDatum(operand.U32(-uint32(1 - i/a.lanes)))
		}
	}
	return a.consts
}

// stored returns the vector of a key in memory.
func (a *asm) stored(key any, lane func(i int) uint32) operand.Mem {
	c := a.table()
	offset, ok := c.at[key]
	if !ok {
		offset = (2 + len(c.at)) * a.bytes()
		c.at[key] = offset
		for i := range a.lanes {
			a.AppendDatum(operand.U32(lane(i)))
		}
	}
	return c.table.Offset(offset)
}

// ramp returns a vector in memory of the numbers first, first+2, first+4...
func (a *asm) ramp(first uint32) operand.Mem {
	return a.stored(rampFrom(first), func(i int) uint32 { return first + 2*uint32(i) })
}

// hold loads the constants that code uses most into registers, for the code
// until release. The code has so many vectors of operands, in each of so many
// ways side by side.
func (a *asm) hold(operands, ways int, code func(*asm)) {
	most := max(0, 5-operands-3*(ways-1))
	if a.wide() {
		most = max(0, 18-2*operands-4*(ways-1))
	}
	counted := &asm{Context: build.NewContext(), isa: a.isa}
	counted.Function("counted")
	used := map[uint32]int{}
	counted.table().used = used
	code(counted)
	keys := slices.Sorted(maps.Keys(used))
	slices.SortStableFunc(keys, func(x, y uint32) int { return used[y] - used[x] })
	held := map[uint32]vec{}
	for _, v := range keys[:min(most, len(keys))] {
		held[v] = a.load(a.bits(v))
	}
	a.table().held = held
}

func (a *asm) release() { a.table().held = nil }

// load returns a register of its own that holds m.
func (a *asm) load(m operand.Op) vec {
	v := a.vec()
	if a.spread(m) {
		a.VBROADCASTSS(m, v)
	} else {
		a.VMOVUPS(m, v)
	}
	return v
}

// register returns a register, which must not be written to, that holds m.
func (a *asm) register(m operand.Op) vec {
	if v, ok := m.(vec); ok {
		return v
	}
	return a.load(m)
}

// fresh returns a copy of v.
func (a *asm) fresh(v vec) vec {
	w := a.vec()
	a.VMOVAPS(v, w)
	return w
}

// spread reports whether m is a constant in memory of which an instruction may
// read one lane for all: tables are not aligned to whole vectors, and a vector
// that lies in two lines of the cache takes twice as long to read.
func (a *asm) spread(m operand.Op) bool {
	at, ok := m.(operand.Mem)
	return ok && a.wide() && a.consts != nil && at.Symbol == a.consts.table.Symbol && a.consts.equal[at.Disp]
}

// with emits an instruction of three operands, of which m may be memory.
func (a *asm) with(whole, spread func(...operand.Op), m operand.Op, x, to vec) vec {
	if a.spread(m) {
		spread(m, x, to)
	} else {
		whole(m, x, to)
	}
	return to
}

// The following return x∘y, in this order: of operations that are not
// commutative, y may be memory.
func (a *asm) add(x vec, y operand.Op) vec { return a.with(a.VADDPS, a.VADDPS_BCST, y, x, a.vec()) }
func (a *asm) sub(x vec, y operand.Op) vec { return a.with(a.VSUBPS, a.VSUBPS_BCST, y, x, a.vec()) }
func (a *asm) mul(x vec, y operand.Op) vec { return a.with(a.VMULPS, a.VMULPS_BCST, y, x, a.vec()) }
func (a *asm) div(x vec, y operand.Op) vec { return a.with(a.VDIVPS, a.VDIVPS_BCST, y, x, a.vec()) }
func (a *asm) and(x vec, y operand.Op) vec { return a.with(a.VANDPS, a.VANDPS_BCST, y, x, a.vec()) }
func (a *asm) or(x vec, y operand.Op) vec  { return a.with(a.VORPS, a.VORPS_BCST, y, x, a.vec()) }
func (a *asm) xor(x vec, y operand.Op) vec { return a.with(a.VXORPS, a.VXORPS_BCST, y, x, a.vec()) }

// lower and upper return the smaller and the larger of x and y; y if either is
// NaN, or both are zero.
func (a *asm) lower(x vec, y operand.Op) vec { return a.with(a.VMINPS, a.VMINPS_BCST, y, x, a.vec()) }
func (a *asm) upper(x vec, y operand.Op) vec { return a.with(a.VMAXPS, a.VMAXPS_BCST, y, x, a.vec()) }

// fma returns x·y + z, in x's register.
func (a *asm) fma(x, y vec, z operand.Op) vec {
	return a.with(a.VFMADD213PS, a.VFMADD213PS_BCST, z, y, x)
}

// fmaOf returns z + x·y, fnmaOf z - x·y, in z's register.
func (a *asm) fmaOf(z, x vec, y operand.Op) vec {
	return a.with(a.VFMADD231PS, a.VFMADD231PS_BCST, y, x, z)
}
func (a *asm) fnmaOf(z, x vec, y operand.Op) vec {
	return a.with(a.VFNMADD231PS, a.VFNMADD231PS_BCST, y, x, z)
}

// Predicates of compare.
const (
	less         = 0x11 // and ordered
	lessEqual    = 0x12
	unordered    = 0x03
	notLessEqual = 0x06 // or unordered
	equal        = 0x00
	greater      = 0x1e
	notLess      = 0x05 // or unordered
	ordered      = 0x07
)

// choose returns yes in the lanes in which x stands to y as the predicate
// says, and no in the others.
func (a *asm) choose(predicate int, x vec, y operand.Op, yes, no vec) vec {
	v := a.vec()
	if a.wide() {
		k := a.K()
		a.VCMPPS(operand.U8(predicate), y, x, k)
		a.VBLENDMPS(yes, no, k, v)
		return v
	}
	k := a.vec()
	a.VCMPPS(operand.U8(predicate), y, x, k)
	a.VBLENDVPS(k, yes, no, v)
	return v
}

// keep returns x in the lanes in which it stands to y as the predicate says,
// and zero in the others.
func (a *asm) keep(predicate int, x vec, y operand.Op) vec {
	v := a.vec()
	if a.wide() {
		k := a.K()
		a.VCMPPS(operand.U8(predicate), y, x, k)
		a.VMOVAPS_Z(x, k, v)
		return v
	}
	a.VCMPPS(operand.U8(predicate), y, x, v)
	a.VANDPS(x, v, v)
	return v
}

// loop describes a function of slices.
type loop struct {
	name    string
	slices  []string // of the operands; the result's is dst
	scalars []string // single operands
	// body computes a vector of the result from those of the operands. It
	// must not change them.
	body func(a *asm, x, s []vec) vec
	// outs and bodies replace dst and body where there are several results,
	// which may be operands too.
	outs   []string
	bodies func(a *asm, x, s []vec) []vec
	// sum is set if the results are to be added up too, and returned.
	sum bool
	// noStore is set if only the sum is wanted.
	noStore bool
	// keeps is how many more vectors the body needs registers for than most do,
	// which constants do not get then.
	keeps int
	// ways is how many vectors are computed side by side, so that few
	// instructions wait for the one before; 0 is one.
	ways int
}

// sideBySide emits code n times, the first instruction of each, the second of
// each and so on. The code must not have labels.
func (a *asm) sideBySide(n int, code func(i int)) {
	file, err := a.Result()
	if err != nil {
		panic(err)
	}
	all := file.Functions()
	f := all[len(all)-1]
	start := len(f.Nodes)
	var parts [][]ir.Node
	for i := range n {
		code(i)
		parts = append(parts, slices.Clone(f.Nodes[start:]))
		f.Nodes = f.Nodes[:start]
	}
	for i := range parts[0] {
		for _, p := range parts {
			f.Nodes = append(f.Nodes, p[i])
		}
	}
}

// write writes the function: whole vectors in a loop, then what is left with a
// mask. A result for an element is the same wherever the element stands.
func (l loop) write(a *asm) {
	if l.bodies == nil {
		l.outs = []string{"dst"}
		l.bodies = func(a *asm, x, s []vec) []vec { return []vec{l.body(a, x, s)} }
	}
	if l.noStore {
		l.outs = nil
	}
	all := slices.Clone(l.outs)
	for _, name := range l.slices {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	signature := strings.Join(all, ", ") + " *float32, n int"
	if len(l.scalars) > 0 {
		signature += ", " + strings.Join(l.scalars, ", ") + " float32"
	}
	signature = "func(" + signature + ")"
	if l.sum {
		signature += " float32"
	}
	a.Function(l.name + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr(signature)
	pointers := map[string]reg.Register{}
	for _, s := range all {
		pointers[s] = a.Load(a.Param(s), a.GP64())
	}
	n := a.Load(a.Param("n"), a.GP64())
	s := a.broadcast(l.scalars)
	a.hold(len(l.slices)+len(l.scalars)+l.keeps, max(l.ways, 1), func(a *asm) { l.bodies(a, a.vecs(len(l.slices)), a.vecs(len(l.scalars))) })
	var total vec
	if l.sum {
		total = a.vec()
		a.zero(total)
	}
	i := a.GP64()
	a.XORQ(i, i)
	// whole computes so many whole vectors at a time.
	whole := func(ways int, run, end string) {
		a.SUBQ(operand.U8(ways*a.lanes), n)
		a.JL(operand.LabelRef(end))
		a.Label(run)
		a.sideBySide(ways, func(way int) {
			var x []vec
			for _, name := range l.slices {
				x = append(x, a.load(indexed(pointers[name], i, 1, way*a.bytes())))
			}
			r := l.bodies(a, x, s)
			if l.sum {
				a.VADDPS(r[0], total, total)
			}
			for j, name := range l.outs {
				a.VMOVUPS(r[j], indexed(pointers[name], i, 1, way*a.bytes()))
			}
		})
		a.ADDQ(operand.I32(ways*a.bytes()), i)
		a.SUBQ(operand.U8(ways*a.lanes), n)
		a.JGE(operand.LabelRef(run))
		a.Label(end)
		a.ADDQ(operand.U8(ways*a.lanes), n)
	}
	done := a.newLabel("done")
	if l.ways > 1 {
		whole(l.ways, a.newLabel("many"), a.newLabel("few"))
	}
	whole(1, a.newLabel("loop"), a.newLabel("tail"))
	a.JZ(operand.LabelRef(done))
	mask := a.firstLanes(n)
	var x []vec
	for _, name := range l.slices {
		v := a.vec()
		if a.wide() {
			a.VMOVUPS_Z(indexed(pointers[name], i, 1, 0), mask, v)
		} else {
			a.VMASKMOVPS(indexed(pointers[name], i, 1, 0), mask.(vec), v)
		}
		x = append(x, v)
	}
	r := l.bodies(a, x, s)
	if l.sum {
		if a.wide() {
			a.VADDPS(r[0], total, mask, total)
		} else {
			v := a.and(r[0], mask.(vec))
			a.VADDPS(v, total, total)
		}
	}
	for j, name := range l.outs {
		if a.wide() {
			a.VMOVUPS(r[j], mask, indexed(pointers[name], i, 1, 0))
		} else {
			a.VMASKMOVPS(r[j], mask.(vec), indexed(pointers[name], i, 1, 0))
		}
	}
	a.Label(done)
	a.release()
	if l.sum {
		a.Store(a.across(total, a.addLanes), a.ReturnIndex(0))
	}
	a.ret()
}

// firstLanes returns a mask of the first n lanes.
func (a *asm) firstLanes(n reg.Register) reg.Register {
	if a.wide() {
		bits, k := a.GP32(), a.K()
		a.MOVL(operand.I32(-1), bits)
		a.BZHIL(n.(reg.GPVirtual).As32(), bits, bits)
		a.KMOVW(bits, k)
		return k
	}
	table, v := a.GP64(), a.vec()
	a.LEAQ(a.table().table.Offset(a.bytes()), table)
	a.NEGQ(n)
	a.VMOVUPS(indexed(table, n, 4, 0), v)
	return v
}

func (a *asm) addLanes(x, y, to operand.Op) { a.VADDPS(y, x, to) }

// across combines all lanes of v.
func (a *asm) across(v vec, combine func(x, y, to operand.Op)) reg.Register {
	if a.wide() {
		upper := a.YMM()
		a.VEXTRACTF64X4(operand.U8(1), v, upper)
		combine(v.AsY(), upper, v.AsY())
	}
	upper := a.XMM()
	a.VEXTRACTF128(operand.U8(1), v.AsY(), upper)
	combine(v.AsX(), upper, v.AsX())
	a.VPERMILPS(operand.U8(0x4e), v.AsX(), upper)
	combine(v.AsX(), upper, v.AsX())
	a.VPERMILPS(operand.U8(0xb1), v.AsX(), upper)
	combine(v.AsX(), upper, v.AsX())
	return v.AsX()
}

// upperRegister matches a register that only AVX-512 has.
var upperRegister = regexp.MustCompile(`[XY](1[6-9]|2\d|3[01])\b`)

// checkRegisters fails where code for AVX2 uses what only AVX-512 has.
func checkRegisters(text string) error {
	for _, line := range strings.Split(text, "\n") {
		if strings.Contains(line, "AVX512") || upperRegister.MatchString(line) {
			return fmt.Errorf("%s: not in AVX2", strings.TrimSpace(line))
		}
	}
	return nil
}
