package quant

import (
	"encoding/binary"
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Products of bytes are computed as unsigned times signed: bytes of the wrong
// kind have their highest bit flipped, which moves them and their zero point
// by 128. Sums are those of the bytes as they are; what the zero points add is
// made good afterwards:
//
//	Σ(a-z)(b-w) = Σab - z·Σb - w·Σa + n·z·w
//
// all modulo 2^32, so every way to compute gives the same bits.

// int8Zeros are sums to begin with.
var int8Zeros [int8Width]int32

// int8Way is how products of bytes are computed.
type int8Way uint8

// The ways to compute products of bytes.
const (
	Int8ByGo   int8Way = iota // plain Go
	int8ByAVX2                // AVX2 or AVX-512, in numbers of 16 bits
	Int8ByVNNI                // AVX-512 with VNNI
)

// The sizes of the loops for products of bytes.
const (
	Int8Step   = 4    // products that are added up at a time
	int8Width  = 32   // columns of a tile
	int8Height = 48   // the most rows of a tile
	Int8Flip   = 0x80 // what turns a signed byte into an unsigned one 128 larger
)

// int8Args are the arguments of the loops that add up products: rows·vectors
// sums, of rows of a, each with steps of four bytes, with vectors of b, each with
// four bytes in every lane. In a product of matrices a is unsigned and the
// steps of b follow each other; in a convolution b is unsigned and its steps
// lie at offsets. By AVX2, a's bytes are numbers of 16 bits, in every step
// those with even places first.
type int8Args struct {
	a       *byte
	aRow    int // bytes
	rows    int
	b       *byte
	offsets *int
	steps   int
	tile    *int32 // rows of int8Width sums
	vectors int    // of 16 lanes, 1 or 2
	first   *int32 // what sums begin with: of columns in a product of matrices, of rows in a convolution
	done    int    // rows, so far
}

// int8FinishArgs are the arguments of the loops that make results of a tile.
// Parameters belong to columns in a product of matrices, to rows in a
// convolution.
type int8FinishArgs struct {
	tile         *int32
	rows         int
	out          *byte
	outRow       int      // bytes
	scale, shift *float32 // for floats and bytes
	outer        *int32   // of each row, or nil
	line         *int32   // of each column: outer·line is added to the sums
	second       int      // bytes from the first 16 results to the others
	low, high    float32
	zero         int32
	keep         [2]uint16 // columns of each vector that count
	store        [2]uint16 // as many columns, from the first on
}

// int8PlaneArgs are the arguments of the loops that compute the whole image of
// one output channel.
type int8PlaneArgs struct {
	x            *byte
	offsets      *int
	steps        int
	w            *byte
	blocks       int
	out          *byte
	first        int32
	scale, shift float32
	low, high    float32
	zero         int32
}

// int8Kind is what sums become.
type int8Kind uint8

const (
	int8ToInts int8Kind = iota
	int8ToFloats
	int8ToBytes
)

// Int8End is the epilogue of a quantised product: how its sums of int32 become the
// result, by zero points, scales (per tensor or per channel), shifts and limits. The
// operands from 2 on are those of [graph.IntegerMatMul].
type Int8End struct {
	kind      int8Kind
	size      int // bytes of a result
	Columns   int
	To        graph.DType
	types     []graph.TensorType
	products  int     // in a sum
	low, high float32 // of a float

	// Of the run in progress.
	AZero     int32 // as if a were unsigned
	Minimum   float32
	Maximum   float32
	Zero      int32
	crosses   bool // b has zero points
	parameter int8Parameters
}

// int8Parameters are the numbers of columns.
type int8Parameters struct {
	bZero        []int32 // as if b were signed
	scale, shift []float32
}

// NewInt8End returns the epilogue of a product of so many columns, each a sum of so
// many products, with operands of types in and a result of type to.
func NewInt8End(in []graph.TensorType, to graph.DType, bounded bool, low, high float64, columns, products int) Int8End {
	e := Int8End{To: to, types: make([]graph.TensorType, 8), Columns: columns, products: products,
		low: float32(math.Inf(-1)), high: float32(math.Inf(1)), size: to.Size()}
	copy(e.types, in)
	if bounded {
		e.low, e.high = float32(low), float32(high)
	}
	switch to {
	case graph.F32:
		e.kind = int8ToFloats
	case graph.I8, graph.U8:
		e.kind = int8ToBytes
	}
	return e
}

// padded returns the columns with those that fill the last tile.
func (e *Int8End) padded() int { return tensor.RoundUp(e.Columns, int8Width) }

// parameterBytes returns the scratch memory that prepare wants.
func (e *Int8End) parameterBytes() int { return 3 * 4 * e.padded() }

// Flips returns the bits to flip in every byte of a to make it unsigned, and of b to
// make it signed.
func (e *Int8End) Flips() (a, b byte) {
	if e.types[0].DType == graph.I8 {
		a = Int8Flip
	}
	if e.types[1].DType == graph.U8 {
		b = Int8Flip
	}
	return a, b
}

// ByteValue returns a byte of type t as a number.
func ByteValue(t graph.DType, b byte) int32 {
	if t == graph.I8 {
		return int32(int8(b))
	}
	return int32(b)
}

// prepare reads what the operands say about columns.
func (e *Int8End) prepare(in [][]byte, scratch []byte) {
	n := e.padded()
	p := &e.parameter
	p.bZero, p.scale, p.shift = tensor.View[int32](scratch[:4*n]), tensor.F32s(scratch[4*n:8*n]), tensor.F32s(scratch[8*n:12*n])
	e.Numbers(in)
	moved := int32(0)
	if e.types[1].DType == graph.U8 {
		moved = 128
	}
	clear(p.bZero[e.Columns:])
	e.crosses = false
	for j := range p.bZero[:e.Columns] {
		v := -moved
		if z := tensor.Memory(in, 3); z != nil {
			v += ByteValue(e.types[1].DType, z[j%len(z)])
		}
		p.bZero[j] = v
		e.crosses = e.crosses || v != 0
	}
	SpreadColumns(p.scale, tensor.F32s(tensor.Memory(in, 5)), e.Columns)
	SpreadColumns(p.shift, tensor.F32s(tensor.Memory(in, 6)), e.Columns)
}

// Numbers reads what the operands say about all columns.
func (e *Int8End) Numbers(in [][]byte) {
	e.AZero = 0
	if z := tensor.Memory(in, 2); z != nil {
		e.AZero = ByteValue(e.types[0].DType, z[0])
	}
	if e.types[0].DType == graph.I8 {
		e.AZero += 128
	}
	e.Minimum, e.Maximum, e.Zero = e.low, e.high, 0
	if e.kind == int8ToBytes {
		if z := tensor.Memory(in, 7); z != nil {
			e.Zero = ByteValue(e.To, z[0])
		}
		low, high := QuantRange(e.To)
		e.Minimum, e.Maximum = max(low-float32(e.Zero), e.low), min(high-float32(e.Zero), e.high)
		e.Minimum = min(e.Minimum, high-float32(e.Zero))
		e.Maximum = max(e.Maximum, low-float32(e.Zero))
	}
}

// SpreadColumns fills dst with the n numbers of src, or its one number n times, or
// zeros.
func SpreadColumns(dst, src []float32, n int) {
	clear(dst[min(n, len(dst)):])
	switch {
	case len(src) == n:
		copy(dst, src)
	case len(src) == 0:
		clear(dst)
	default:
		for i := range dst[:n] {
			dst[i] = src[0]
		}
	}
}

// begin sets first to what is added to the sums of each column, of which the
// sum of b's bytes is known.
func (e *Int8End) begin(first, bias, sums []int32) {
	clear(first[e.Columns:])
	n := int32(e.products)
	for j := range first[:e.Columns] {
		v := e.AZero * (n*e.parameter.bZero[j] - sums[j])
		if bias != nil {
			v += bias[j]
		}
		first[j] = v
	}
}

// done forgets the run.
func (e *Int8End) done() { e.parameter = int8Parameters{} }

// finish returns the arguments to make results of a tile, with parameters
// from a number on.
func (e *Int8End) finish(from int) int8FinishArgs {
	p := &e.parameter
	return int8FinishArgs{
		scale: &p.scale[from], shift: &p.shift[from],
		low: e.Minimum, high: e.Maximum, zero: e.Zero, second: 16 * e.size,
		keep: [2]uint16{0xffff, 0xffff}, store: [2]uint16{0xffff, 0xffff},
	}
}

// int8Value makes a number of a sum, and int8Byte a byte of that.
func int8Value(sum int32, scale, shift float32) float32 { return float32(float32(sum)*scale) + shift }

func int8Byte(v float32, e *int8FinishArgs) byte {
	return byte(quantise(v, e.low, e.high, 0) + e.zero)
}

// bounded returns v within low and high; NaN stays what it is.
func bounded(v, low, high float32) float32 {
	if v < low {
		v = low
	}
	if v > high {
		v = high
	}
	return v
}

// int8Store makes a result of a sum and stores it as element i of out.
func int8Store(kind int8Kind, out []byte, i int, sum int32, scale, shift float32, e *int8FinishArgs) {
	switch kind {
	case int8ToInts:
		binary.LittleEndian.PutUint32(out[4*i:], uint32(sum))
	case int8ToFloats:
		binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(bounded(int8Value(sum, scale, shift), e.low, e.high)))
	default:
		out[i] = int8Byte(int8Value(sum, scale, shift), e)
	}
}

// Interleave writes n lanes of four bytes to dst, one of each row, flipped.
func Interleave(way int8Way, dst []byte, rows [4][]byte, n int, flip byte) {
	if vectorInterleave(way, dst, rows, n, flip) {
		return
	}
	r0, r1, r2, r3 := rows[0][:n], rows[1][:n], rows[2][:n], rows[3][:n]
	for i := range n {
		v := uint32(r0[i]) | uint32(r1[i])<<8 | uint32(r2[i])<<16 | uint32(r3[i])<<24
		binary.LittleEndian.PutUint32(dst[4*i:], v^uint32(flip)*0x01010101)
	}
}

// flipBytes copies bytes, flipped.
func flipBytes(dst, src []byte, flip byte) {
	dst = dst[:len(src)]
	i, all := 0, uint64(flip)*0x0101010101010101
	for ; i+8 <= len(src); i += 8 {
		binary.LittleEndian.PutUint64(dst[i:], binary.LittleEndian.Uint64(src[i:])^all)
	}
	for ; i < len(src); i++ {
		dst[i] = src[i] ^ flip
	}
}

// sumUnsigned returns the sum of unsigned bytes.
func sumUnsigned(x []byte) int32 {
	const odd = 0x00ff00ff00ff00ff
	sum := int32(0)
	for len(x) >= 8 {
		// 128 sums of two bytes fit into 16 bits.
		n := min(len(x)&^7, 8*128)
		var lanes uint64
		for i := 0; i < n; i += 8 {
			v := binary.LittleEndian.Uint64(x[i:n])
			lanes += v&odd + v>>8&odd
		}
		sum += int32(lanes&0xffff) + int32(lanes>>16&0xffff) + int32(lanes>>32&0xffff) + int32(lanes>>48)
		x = x[n:]
	}
	for _, v := range x {
		sum += int32(v)
	}
	return sum
}

// int8Place is where in a step of numbers of 16 bits a byte stands.
var int8Place = [Int8Step]int{0, 2, 1, 3}

// stepBytes returns the bytes of a step of a.
func (w int8Way) stepBytes() int {
	if w == int8ByAVX2 {
		return 2 * Int8Step
	}
	return Int8Step
}

// placeByte sets a byte of a row of a, which is signed or not.
func placeByte[T int8 | uint8](way int8Way, row []byte, i int, v T) {
	if way == int8ByAVX2 {
		i = i&^(Int8Step-1) + int8Place[i%Int8Step]
		binary.LittleEndian.PutUint16(row[2*i:], uint16(int16(v)))
		return
	}
	row[i] = byte(v)
}

// copyRow makes a row of a of unsigned bytes, flipped, with zeros to the end.
func copyRow(way int8Way, dst, src []byte, flip byte) {
	if way != int8ByAVX2 {
		flipBytes(dst, src, flip)
		clear(dst[len(src):])
		return
	}
	done := vectorWidenBytes(tensor.View[int16](dst), src, flip)
	clear(dst[2*done:])
	for i := done; i < len(src); i++ {
		placeByte(way, dst, i, src[i]^flip)
	}
}

// int8Masks returns the masks of the first n columns of a tile.
func int8Masks(n int) [2]uint16 {
	m := uint32(uint64(1)<<n - 1)
	return [2]uint16{uint16(m), uint16(m >> 16)}
}
