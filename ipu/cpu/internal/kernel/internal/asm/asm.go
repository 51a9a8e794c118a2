package main

import (
	"fmt"
	"go/types"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa is an instruction set.
type isa struct {
	name  string // ends the functions' names
	file  string // in the files' names
	lanes int    // float32 in a vector
}

var (
	avx2   = isa{name: "AVX2", file: "avx2", lanes: 8}
	avx512 = isa{name: "AVX512", file: "avx512", lanes: 16}
)

// wide reports whether the set has 32 registers of 512 bits, and mask
// registers.
func (s isa) wide() bool { return s.lanes == 16 }

// bytes returns the bytes of a vector.
func (s isa) bytes() int { return 4 * s.lanes }

// asm writes one file. Structs that write by it have it in a field, and do not
// embed it: for every type that does, the compiler makes two functions of each
// of the 3,200 methods of build.Context.
type asm struct {
	*build.Context
	isa
	label   int
	consts  *constants
	structs *structs          // of the package that the file belongs to
	args    *types.Named      // what the current function's argument points to, if that is a struct
	argsOf  map[string]string // the same by name, by function
	tiles   map[string]tileOf // by function
}

// vec returns a new vector register.
func (a *asm) vec() reg.VecVirtual {
	if a.wide() {
		return a.ZMM()
	}
	return a.YMM()
}

// vecs returns n new vector registers.
func (a *asm) vecs(n int) []reg.VecVirtual {
	v := make([]reg.VecVirtual, n)
	for i := range v {
		v[i] = a.vec()
	}
	return v
}

// zero sets a vector to zero. The short form clears the rest of the register
// too.
func (a *asm) zero(v reg.VecVirtual) { a.VXORPS(v.AsX(), v.AsX(), v.AsX()) }

// newLabel returns a label that no other place has.
func (a *asm) newLabel(what string) string {
	a.label++
	return fmt.Sprintf("%s%d", what, a.label)
}

// function starts a function whose argument is a pointer to a struct of the
// package, and returns that.
func (a *asm) function(name, args string) reg.Register { return a.begin(name+a.name, args) }

// begin is [asm.function] by the whole name.
func (a *asm) begin(name, args string) reg.Register {
	a.Function(name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(args *uint8)")
	a.args = a.structs.named(args)
	if a.argsOf == nil {
		a.argsOf = map[string]string{}
	}
	a.argsOf[name] = args
	return a.Load(a.Param("args"), a.GP64())
}

// field is the memory of a field of the function's arguments, which are at
// base. The field of a struct within them is "outer.inner".
func (a *asm) field(base reg.Register, path string) operand.Mem { return at(base, a.offset(path)) }

// offset returns how many bytes after their beginning the function's arguments
// have a field.
func (a *asm) offset(path string) int { return a.structs.offset(a.args, path) }

// ret ends a function.
func (a *asm) ret() {
	a.VZEROUPPER()
	a.RET()
}

// at is the memory at base + disp.
func at(base reg.Register, disp int) operand.Mem {
	return operand.Mem{Base: base, Disp: disp}
}

// indexed is the memory at base + index·scale + disp.
func indexed(base, index reg.Register, scale uint8, disp int) operand.Mem {
	return operand.Mem{Base: base, Index: index, Scale: scale, Disp: disp}
}
