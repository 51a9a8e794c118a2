package kernel

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
)

// stubCase is a loop over elements in assembly and, in float64, what it
// computes for one.
type stubCase struct {
	wide, narrow any // for AVX-512 and AVX2, of one of the types of stubCase.run
	low, high    float64
	scalars      []float32
	// want is the result for one element of each operand. Of what returns a sum
	// or an extreme it is joined with the result for the elements before.
	want func(x []float64) float64
	join func(x, y float64) float64
}

func one(wide, narrow unaryLoop, low, high float64, want func(x float64) float64) stubCase {
	return stubCase{wide: wide, narrow: narrow, low: low, high: high, want: func(x []float64) float64 { return want(x[0]) }}
}

func two(wide, narrow binaryLoop, low, high float64, want func(x, y float64) float64) stubCase {
	return stubCase{wide: wide, narrow: narrow, low: low, high: high, want: func(x []float64) float64 { return want(x[0], x[1]) }}
}

func withScalar(wide, narrow scaledLoop, scalar float32, want func(x, y float64) float64) stubCase {
	return stubCase{wide: wide, narrow: narrow, low: -3, high: 3, scalars: []float32{scalar}, want: func(x []float64) float64 { return want(x[0], float64(scalar)) }}
}

func plus(x, y float64) float64 { return x + y }

func plainSigmoid(x float64) float64  { return 1 / (1 + math.Exp(-x)) }
func plainSoftplus(x float64) float64 { return math.Log1p(math.Exp(x)) }

// kept is x, or other below a limit.
func kept(x, limit, other float64) float64 {
	if x < limit {
		return other
	}
	return x
}

// stubCases are the loops over elements by operation.
var stubCases = map[string]stubCase{
	"add":        two(addAVX512, addAVX2, -9, 9, plus),
	"subtract":   two(subtractAVX512, subtractAVX2, -9, 9, func(x, y float64) float64 { return x - y }),
	"multiply":   two(multiplyAVX512, multiplyAVX2, -9, 9, func(x, y float64) float64 { return x * y }),
	"divide":     two(divideAVX512, divideAVX2, 1, 9, func(x, y float64) float64 { return x / y }),
	"maximum":    two(maximumAVX512, maximumAVX2, -9, 9, math.Max),
	"minimum":    two(minimumAVX512, minimumAVX2, -9, 9, math.Min),
	"pow":        two(powAVX512, powAVX2, 0.1, 3, math.Pow),
	"prelu":      two(preluAVX512, preluAVX2, -3, 3, func(x, y float64) float64 { return kept(x, 0, x*y) }),
	"relu":       one(reluAVX512, reluAVX2, -3, 3, func(x float64) float64 { return max(x, 0) }),
	"addOne":     withScalar(addOneAVX512, addOneAVX2, 1.5, plus),
	"maximumOne": withScalar(maximumOneAVX512, maximumOneAVX2, 1.5, math.Max),
	"minimumOne": withScalar(minimumOneAVX512, minimumOneAVX2, 1.5, math.Min),
	"preluOne":   withScalar(preluOneAVX512, preluOneAVX2, 0.25, func(x, y float64) float64 { return kept(x, 0, x*y) }),
	"scale":      withScalar(scaleAVX512, scaleAVX2, 1.5, func(x, y float64) float64 { return x * y }),
	"leakyRelu":  withScalar(leakyReluAVX512, leakyReluAVX2, 0.25, func(x, y float64) float64 { return kept(x, 0, x*y) }),
	"thresholdedRelu": withScalar(thresholdedReluAVX512, thresholdedReluAVX2, 0.5, func(x, y float64) float64 {
		return kept(x, y, 0)
	}),
	"swish":       withScalar(swishAVX512, swishAVX2, 1.5, func(x, y float64) float64 { return x * plainSigmoid(x*y) }),
	"exp":         one(expAVX512, expAVX2, -9, 9, math.Exp),
	"log":         one(logAVX512, logAVX2, 0.1, 9, math.Log),
	"sigmoid":     one(sigmoidAVX512, sigmoidAVX2, -9, 9, plainSigmoid),
	"tanh":        one(tanhAVX512, tanhAVX2, -9, 9, math.Tanh),
	"erf":         one(erfAVX512, erfAVX2, -4, 4, math.Erf),
	"softplus":    one(softplusAVX512, softplusAVX2, -9, 9, plainSoftplus),
	"mish":        one(mishAVX512, mishAVX2, -9, 9, func(x float64) float64 { return x * math.Tanh(plainSoftplus(x)) }),
	"gelu":        one(geluAVX512, geluAVX2, -4, 4, func(x float64) float64 { return x * (1 + math.Erf(x/math.Sqrt2)) / 2 }),
	"geluTanh":    one(geluTanhAVX512, geluTanhAVX2, -4, 4, func(x float64) float64 { return x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) / 2 }),
	"sin":         one(sinAVX512, sinAVX2, -9, 9, math.Sin),
	"cos":         one(cosAVX512, cosAVX2, -9, 9, math.Cos),
	"atan":        one(atanAVX512, atanAVX2, -9, 9, math.Atan),
	"asin":        one(asinAVX512, asinAVX2, -1, 1, math.Asin),
	"acos":        one(acosAVX512, acosAVX2, -1, 1, math.Acos),
	"sinh":        one(sinhAVX512, sinhAVX2, -3, 3, math.Sinh),
	"cosh":        one(coshAVX512, coshAVX2, -3, 3, math.Cosh),
	"root":        one(rootAVX512, rootAVX2, 0, 9, math.Sqrt),
	"abs":         one(absAVX512, absAVX2, -9, 9, math.Abs),
	"negate":      one(negateAVX512, negateAVX2, -9, 9, func(x float64) float64 { return -x }),
	"sign":        one(signAVX512, signAVX2, -9, 9, func(x float64) float64 { return math.Copysign(1, x) }),
	"round":       one(roundAVX512, roundAVX2, -9, 9, math.RoundToEven),
	"floor":       one(floorAVX512, floorAVX2, -9, 9, math.Floor),
	"ceil":        one(ceilAVX512, ceilAVX2, -9, 9, math.Ceil),
	"sqrt":        one(sqrtAVX512, sqrtAVX2, 0, 9, math.Sqrt),
	"reciprocal":  one(reciprocalAVX512, reciprocalAVX2, 1, 9, func(x float64) float64 { return 1 / x }),
	"softsign":    one(softsignAVX512, softsignAVX2, -9, 9, func(x float64) float64 { return x / (1 + math.Abs(x)) }),
	"hardSwish":   one(hardSwishAVX512, hardSwishAVX2, -9, 9, func(x float64) float64 { return x * min(max(x/6+0.5, 0), 1) }),
	"hardSigmoid": {wide: hardSigmoidAVX512, narrow: hardSigmoidAVX2, low: -9, high: 9, scalars: []float32{0.25, 0.5}, want: func(x []float64) float64 { return min(max(x[0]*0.25+0.5, 0), 1) }},
	"divideOne":   {wide: divideOneAVX512, narrow: divideOneAVX2, low: -9, high: 9, scalars: []float32{4, 0.25}, want: func(x []float64) float64 { return x[0] / 4 }},
	"lower":       {wide: lowerAVX512, narrow: lowerAVX2, low: -9, high: 9, scalars: []float32{0.5, 0.25}, want: func(x []float64) float64 { return x[0] - 0.75 }},
	"elu":         {wide: eluAVX512, narrow: eluAVX2, low: -3, high: 3, scalars: []float32{0.5, 2, 4}, want: func(x []float64) float64 { return 4 * kept(x[0], 0, 0.5*math.Expm1(2*x[0])) }},
	"normalise":   {wide: normaliseAVX512, narrow: normaliseAVX2, low: -9, high: 9, scalars: []float32{0.5, 2, 4}, want: func(x []float64) float64 { return (x[0]-0.5)*2 + 4 }},
	"clipOne":     {wide: clipOneAVX512, narrow: clipOneAVX2, low: -9, high: 9, scalars: []float32{-1, 2, 0}, want: func(x []float64) float64 { return min(max(x[0], -1), 2) }},

	"expDifference": two(expDifferenceAVX512, expDifferenceAVX2, -3, 3, func(x, y float64) float64 { return math.Exp(x - y) }),
	"clip":          {wide: clipAVX512, narrow: clipAVX2, low: -3, high: 3, want: func(x []float64) float64 { return min(max(x[0], x[1]), x[2]) }},
	"gated":         two(gatedAVX512, gatedAVX2, -3, 3, func(x, y float64) float64 { return plainSigmoid(x) * y }),
	"gruCell": {wide: gruCellAVX512, narrow: gruCellAVX2, low: -3, high: 3, want: func(x []float64) float64 {
		z := plainSigmoid(x[0])
		return (1-z)*math.Tanh(x[1]) + z*x[2]
	}},

	"normaliseScale": {wide: normaliseScaleAVX512, narrow: normaliseScaleAVX2, low: -3, high: 3, scalars: []float32{0.5, 2}, want: func(x []float64) float64 {
		return (x[0] - 0.5) * 2 * x[1]
	}},
	"normaliseScaleBias": {wide: normaliseScaleBiasAVX512, narrow: normaliseScaleBiasAVX2, low: -3, high: 3, scalars: []float32{0.5, 2}, want: func(x []float64) float64 {
		return (x[0]-0.5)*2*x[1] + x[2]
	}},
	"divideScaled": {wide: divideScaledAVX512, narrow: divideScaledAVX2, low: 1, high: 9, scalars: []float32{2}, want: func(x []float64) float64 { return x[0] / (2 * x[1]) }},
	"expShift":     {wide: expShiftAVX512, narrow: expShiftAVX2, low: -3, high: 3, scalars: []float32{0.5}, want: func(x []float64) float64 { return math.Exp(x[0] - 0.5) }, join: plus},

	"sum":         {wide: sumAVX512, narrow: sumAVX2, low: 0, high: 9, want: func(x []float64) float64 { return x[0] }, join: plus},
	"squares":     {wide: squaresAVX512, narrow: squaresAVX2, low: -9, high: 9, scalars: []float32{0.5}, want: func(x []float64) float64 { return (x[0] - 0.5) * (x[0] - 0.5) }, join: plus},
	"longSquares": {wide: longSquaresAVX512, narrow: longSquaresAVX2, low: -9, high: 9, want: func(x []float64) float64 { return x[0] * x[0] }, join: plus},
	"most":        {wide: mostAVX512, narrow: mostAVX2, low: -9, high: 9, want: func(x []float64) float64 { return x[0] }, join: math.Max},
	"least":       {wide: leastAVX512, narrow: leastAVX2, low: -9, high: 9, want: func(x []float64) float64 { return x[0] }, join: math.Min},
	"expShiftSum": {wide: expShiftSumAVX512, narrow: expShiftSumAVX2, low: -3, high: 3, scalars: []float32{0.5}, want: func(x []float64) float64 { return math.Exp(x[0] - 0.5) }, join: plus},
}

// elsewhere are the operations that the tests of their kernels run, by
// differences from the plain Go path: loops over groups, rows and tiles, which
// have arguments of their own.
var elsewhere = strings.Fields(`
	bilinearPixels blockedDepthwise3 blockedDepthwise3Even blockedDepthwise5 blockedDepthwise5Even blockedTiles blocksToPlanes blocksToPlanesHalf
	bytesAdd bytesConv bytesDepth bytesMap bytesMost bytesMul bytesTranspose choose convCopy convCopyEven convMaps convPixels convPlane convStore copyRuns deal2
	deal3 depthwise3 depthwise3Even depthwise5 depthwise5Even dequantiseSigned dequantiseUnsigned dot equalFloat equalInt floatToBool
	floatToByte floatToInt floatToLong gates gemm gemmMasked gemv greater gruLinearCell int8ColumnsBytes int8ColumnsFloats int8ColumnsInts int8Conv int8Even
	int8Interleave int8PlaneBytes int8PlaneFloats int8PlaneInts int8Product int8RowsBytes int8RowsFloats int8RowsInts int8Widen intToFloat interpolate
	layerNormRows lessEqualFloat lessEqualInt lessFloat lessInt logSoftmaxRows longSquaresEach longSquaresRows longSumRows longToFloat lstmCell mostAlong
	mostAlong2 mostDown mostPixels mostRows mostSlide mostSlide2 narrow narrowBfloat peak planesToBlocks planesToBlocksHalf
	quantise quantiseBy rmsNormRows softmaxColumns softmaxRows sumAlong sumAlong2 sumDown sumEach sumPixels sumRows sumShort sumSlide sumSlide2 transpose
	transposeTiles widen widenBfloat`)

// TestStubsHaveTests finds functions in assembly that are in none of the lists.
func TestStubsHaveTests(t *testing.T) {
	listed := map[string]bool{}
	for _, name := range elsewhere {
		listed[name] = true
	}
	for name := range stubCases {
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
				found[operation] = true
				require.True(t, listed[operation], "%s has no test: add it to stubCases, or say in elsewhere that its kernel's tests run it", f.Name.Name)
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

// run calls f with n elements of memory that is guarded: dst and operands are
// at its end or at its beginning. It returns what f does, if anything.
func (c *stubCase) run(f any, dst []float32, x [][]float32) (result float64, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("beyond its memory: %v", r)
		}
	}()
	n, s := len(dst), c.scalars
	switch f := f.(type) {
	case unaryLoop:
		f(&dst[0], &x[0][0], n)
	case binaryLoop:
		f(&dst[0], &x[0][0], &x[1][0], n)
	case func(dst, x, y, z *float32, n int):
		f(&dst[0], &x[0][0], &x[1][0], &x[2][0], n)
	case scaledLoop:
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

// TestStubs runs the loops over elements by themselves, with every remainder,
// between pages that may not be touched.
func TestStubs(t *testing.T) {
	if path == pathGo {
		t.Skip("no AVX2")
	}
	const most = 2*2*16 + 3 // two rounds of two vectors, and some
	memory := [4][2][]float32{}
	for i := range memory {
		memory[i] = guarded(t, most)
	}
	for name, c := range stubCases {
		functions := map[string]any{"AVX2": c.narrow}
		if path == pathAVX512 {
			functions["AVX512"] = c.wide
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
							x[i] = float32(c.low + (c.high-c.low)*random.Float64())
						}
					}
					result, err := c.run(f, dst, x)
					require.NoError(t, err, "%s%s of %d elements", name, set, n)
					var total float64
					for i := range n {
						want := c.want([]float64{float64(x[0][i]), float64(x[1][i]), float64(x[2][i])})
						if c.join == nil {
							require.InDelta(t, want, float64(dst[i]), 4e-6*max(1, math.Abs(want)), "%s%s of %d elements: element %d", name, set, n, i)
						} else if total = c.join(total, want); i == 0 {
							total = want
						}
					}
					if c.join != nil {
						require.InDelta(t, total, result, 4e-6*max(1, math.Abs(total)), "%s%s of %d elements", name, set, n)
					}
				}
			}
		}
	}
}
