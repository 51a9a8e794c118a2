// Command asm writes the assembly of the CPU kernels, and the Go declarations
// of its functions (stubs_*_amd64.go), into the directory of their package,
// which `go generate` there names. It is a module of its own so
// that nobody needs avo to build or test popefgen.
//
//	asm DIRECTORY          delete what it wrote before and write it anew
//	asm -check DIRECTORY   write nothing; fail if something would change
package main

import (
	"flag"
	"fmt"
	"os"
)

// source is a function that writes the assembly of one file, once for each
// instruction set.
type source struct {
	dir   string // of the package, below the directory that the command is given
	name  string // the file's, before the instruction set; what writes it is in the file of this name here
	write func(*asm)
}

// sources lists all that is written.
var sources = []source{
	{"peak", "peak", writePeak},
	{"gemm", "gemm", writeGemm},
	{"gemm", "gemv", writeGemv},
	{"vec", "elementwise", writeElementwise},
	{"conv", "depthwise", writeDepthwise},
	{"conv", "conv", writeConv},
	{"gemm", "copy", writeCopy},
	{"vec", "functions", writeFunctions},
	{"recurrent", "cells", writeCells},
	{"recurrent", "gates", writeGates},
	{"vec", "folds", writeFolds},
	{"vec", "rows", writeRows},
	{"attention", "attention", writeAttention},
	{"window", "pool", writePool},
	{"vec", "quant", writeQuant},
	{"quant", "int8", writeInt8},
	{"nhwc", "bytes", writeBytes},
	{"vec", "compare", writeCompare},
	{"vec", "casts", writeCasts},
	{"vec", "moves", writeMoves},
	{"nchwc", "blocked", writeBlocked},
	{"nchwc", "blocked_moves", writeBlockMoves},
	{"nchwc", "blocked_depthwise", writeBlockedDepthwise},
	{"nchwc", "blocked_pool", writeBlockedPool},
	{"window", "planes", writePlanes},
	{"window", "resize", writeResize},
	{"gradient", "gradient", writeGradient},
	{"update", "update", writeUpdate},
}

func main() {
	check := flag.Bool("check", false, "write nothing; fail if a file would change")
	flag.Usage = func() { fmt.Fprintln(flag.CommandLine.Output(), "usage: asm [-check] DIRECTORY") }
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *check); err != nil {
		fmt.Fprintf(os.Stderr, "asm: %v\n", err)
		os.Exit(1)
	}
}

// run brings the generated files below root up to date, or checks that they
// are.
func run(root string, check bool) error {
	files, err := generate(root, sources)
	if err != nil {
		return err
	}
	old, err := committed(root, sources)
	if err != nil {
		return err
	}
	if check {
		return compare(old, files)
	}
	return replace(root, old, files)
}
