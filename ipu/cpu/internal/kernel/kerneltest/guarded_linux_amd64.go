package kerneltest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// Stub is a loop over elements in assembly and, in float64, what it computes for
// one.
type Stub struct {
	Wide, Narrow any // for AVX-512 and AVX2, of one of the types of call
	Low, High    float64
	Scalars      []float32
	// Want is the result for one element of each operand. Of what returns a sum or
	// an extreme it is joined with the result for the elements before.
	Want func(x []float64) float64
	Join func(x, y float64) float64
}

// StubsHaveTests finds functions in assembly, of the package in the working
// directory, that are neither among the cases nor listed as run elsewhere, by the
// tests of their kernels.
func StubsHaveTests(t *testing.T, cases map[string]Stub, elsewhere string) {
	listed := map[string]bool{}
	for _, name := range strings.Fields(elsewhere) {
		listed[name] = true
	}
	for name := range cases {
		require.False(t, listed[name], "%s is listed twice", name)
		listed[name] = true
	}
	files, err := filepath.Glob("stubs_*_amd64.go")
	require.NoError(t, err)
	found := map[string]bool{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				operation := strings.TrimSuffix(strings.TrimSuffix(f.Name.Name, "AVX512"), "AVX2")
				operation, _, _ = strings.Cut(operation, "_") // a tile's
				found[operation] = true
				require.True(t, listed[operation], "%s has no test: add a case, or list it among those that the tests of their kernels run", f.Name.Name)
			}
		}
	}
	for name := range listed {
		require.True(t, found[name], "there is no function %s", name)
	}
}

// guarded returns n elements that end where memory ends that may be read, and
// n that begin where it begins.
func guarded(t *testing.T, n int) [2][]float32 {
	page := unix.Getpagesize()
	size := (4*n + page - 1) / page * page
	all, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Munmap(all) })
	require.NoError(t, unix.Mprotect(all[:page], unix.PROT_NONE))
	require.NoError(t, unix.Mprotect(all[page+size:], unix.PROT_NONE))
	first, last := unsafe.Pointer(&all[page]), unsafe.Pointer(&all[page+size-4*n])
	return [2][]float32{unsafe.Slice((*float32)(last), n), unsafe.Slice((*float32)(first), n)}
}

// call calls f with n elements of memory that is guarded: dst and operands are
// at its end or at its beginning. It returns what f does, if anything.
func (c *Stub) call(f any, dst []float32, x [][]float32) (result float64, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("beyond its memory: %v", r)
		}
	}()
	n, s := len(dst), c.Scalars
	switch f := f.(type) {
	case func(dst, x *float32, n int):
		f(&dst[0], &x[0][0], n)
	case func(dst, x, y *float32, n int):
		f(&dst[0], &x[0][0], &x[1][0], n)
	case func(dst, x, y, z *float32, n int):
		f(&dst[0], &x[0][0], &x[1][0], &x[2][0], n)
	case func(dst, x *float32, n int, y float32):
		f(&dst[0], &x[0][0], n, s[0])
	case func(dst, x *float32, n int, y, z float32):
		f(&dst[0], &x[0][0], n, s[0], s[1])
	case func(dst, x *float32, n int, y, z, w float32):
		f(&dst[0], &x[0][0], n, s[0], s[1], s[2])
	case func(dst, x, y *float32, n int, z float32):
		f(&dst[0], &x[0][0], &x[1][0], n, s[0])
	case func(dst, x, y *float32, n int, z, w float32):
		f(&dst[0], &x[0][0], &x[1][0], n, s[0], s[1])
	case func(dst, x, y, z *float32, n int, u, v float32):
		f(&dst[0], &x[0][0], &x[1][0], &x[2][0], n, s[0], s[1])
	case func(dst, x *float32, n int, y float32) float32:
		result = float64(f(&dst[0], &x[0][0], n, s[0]))
	case func(x *float32, n int) float32:
		result = float64(f(&x[0][0], n))
	case func(x *float32, n int) float64:
		result = f(&x[0][0], n)
	case func(x *float32, n int, y float32) float32:
		result = float64(f(&x[0][0], n, s[0]))
	default:
		panic(fmt.Sprintf("no call for %T", f))
	}
	return result, nil
}

// Stubs runs loops over elements by themselves, with every remainder, between
// pages that may not be touched.
func Stubs(t *testing.T, cases map[string]Stub) {
	if tensor.Path == tensor.PathGo {
		t.Skip("no AVX2")
	}
	const most = 2*2*16 + 3 // two rounds of two vectors, and some
	memory := [4][2][]float32{}
	for i := range memory {
		memory[i] = guarded(t, most)
	}
	for name, c := range cases {
		functions := map[string]any{"AVX2": c.Narrow}
		if tensor.Path == tensor.PathAVX512 {
			functions["AVX512"] = c.Wide
		}
		for set, f := range functions {
			random := rand.New(rand.NewPCG(1, uint64(len(name))))
			for n := 1; n <= most; n++ {
				for side := range 2 {
					of := func(i int) []float32 {
						if side == 0 {
							return memory[i][0][most-n:]
						}
						return memory[i][1][:n]
					}
					dst, x := of(0), [][]float32{of(1), of(2), of(3)}
					for _, x := range x {
						for i := range x {
							x[i] = float32(c.Low + (c.High-c.Low)*random.Float64())
						}
					}
					result, err := c.call(f, dst, x)
					require.NoError(t, err, "%s%s of %d elements", name, set, n)
					var total float64
					for i := range n {
						want := c.Want([]float64{float64(x[0][i]), float64(x[1][i]), float64(x[2][i])})
						if c.Join == nil {
							require.InDelta(t, want, float64(dst[i]), 4e-6*max(1, math.Abs(want)), "%s%s of %d elements: element %d", name, set, n, i)
						} else if total = c.Join(total, want); i == 0 {
							total = want
						}
					}
					if c.Join != nil {
						require.InDelta(t, total, result, 4e-6*max(1, math.Abs(total)), "%s%s of %d elements", name, set, n)
					}
				}
			}
		}
	}
}
