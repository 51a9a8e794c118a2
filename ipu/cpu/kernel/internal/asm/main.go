// Command asm writes the assembly files of package kernel, which is the
// working directory of `go generate` there. It is a module of its own so that
// nobody needs avo to build or test popefgen.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
	"github.com/mmcloughlin/avo/reg"
)

// files lists what is written, each for every instruction set.
var files = []struct {
	name  string
	write func(*asm)
}{
	{"peak", writePeak},
	{"gemm", writeGemm},
	{"gemv", writeGemv},
	{"elementwise", writeElementwise},
	{"depthwise", writeDepthwise},
	{"conv", writeConv},
	{"functions", writeFunctions},
	{"cells", writeCells},
	{"folds", writeFolds},
	{"rows", writeRows},
	{"attention", writeAttention},
	{"pool", writePool},
	{"quant", writeQuant},
	{"int8", writeInt8},
	{"bytes", writeBytes},
	{"compare", writeCompare},
	{"casts", writeCasts},
	{"moves", writeMoves},
	{"blocked", writeBlocked},
	{"blocked_moves", writeBlockMoves},
	{"blocked_depthwise", writeBlockedDepthwise},
	{"blocked_pool", writeBlockedPool},
	{"planes", writePlanes},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: asm DIRECTORY")
		os.Exit(2)
	}
	for _, f := range files {
		for _, set := range []isa{avx2, avx512} {
			path := filepath.Join(os.Args[1], f.name+"_"+set.file+"_amd64.s")
			if err := write(path, set, f.write); err != nil {
				fmt.Fprintf(os.Stderr, "asm: writing %s: %v\n", path, err)
				os.Exit(1)
			}
		}
	}
}

func write(path string, set isa, fn func(*asm)) error {
	a := &asm{Context: build.NewContext(), isa: set}
	fn(a)
	file, err := a.Result()
	if err != nil {
		return err
	}
	if err := pass.Compile.Execute(file); err != nil {
		return err
	}
	text, err := printer.NewGoAsm(printer.Config{Name: "internal/asm", Pkg: "kernel"}).Print(file)
	if err != nil {
		return err
	}
	if !set.wide() {
		if err := checkRegisters(string(text)); err != nil {
			return err
		}
	}
	return os.WriteFile(path, text, 0o644)
}

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

// asm writes one file.
type asm struct {
	*build.Context
	isa
	label  int
	consts *constants
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

// function starts a function that takes one pointer to its arguments, which it
// returns.
func (a *asm) function(name string) reg.Register {
	a.Function(name + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(args *uint8)")
	return a.Load(a.Param("args"), a.GP64())
}

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
