package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/oip"
)

// typed is a model with an input of every type that JSON carries, chosen by number, and one more.
func typed(n uint8) *oip.Spec {
	types := []oip.DataType{oip.FP32, oip.Bool, oip.Uint8, oip.Uint16, oip.Uint32, oip.Uint64, oip.Int8, oip.Int16, oip.Int32, oip.Int64, oip.FP16, oip.BF16, oip.FP64}
	s := spec()
	if int(n) < len(types) {
		s.Inputs = []oip.Tensor{{Name: "x", Type: types[n], Shape: []int64{-1, 2}, Max: []int64{8, 2}}}
	}
	return s
}

// both reads a body with the fast reader and the plain one, and wants them to agree.
func both(t *testing.T, spec *oip.Spec, body []byte, header int64, source io.Reader) {
	s := slow{body: body, spec: spec}
	want := s.request(header)
	var d Reader
	var r Request
	mem := newMemory(len(spec.Inputs))
	r.Reset(spec)
	d.Reset(source, int64(len(body)))
	err := d.Request(&r, mem, header)
	if want != nil {
		require.Error(t, err, "%.200q", body)
		var e *oip.Error
		require.ErrorAs(t, err, &e)
		require.NotEqual(t, oip.Internal, e.Code)
		return
	}
	require.NoError(t, err, "%.200q", body)
	require.Equal(t, string(s.req.ID), string(r.ID))
	require.Equal(t, s.req.Wanted, r.Wanted)
	require.Equal(t, s.req.Priority, r.Priority)
	require.Equal(t, string(s.req.Contract), string(r.Contract))
	for i, data := range s.inputs {
		require.Equal(t, data, append([]byte{}, mem.in[i][:len(data)]...), "input %d of %.200q", i, body)
	}
	require.Equal(t, int64(len(body)), d.Received())
}

// bodies are requests, right and wrong, of all models of typed; each begins with the model's number.
var bodies = []string{
	"0{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP32\",\"data\":[1.5,-2e3]}]}",
	"0 { \"id\" : \"a\\u00e9\\n\" , \"inputs\" : [ { \"data\" : [ [ 1 , 2 ] , [ 3, 4 ] ] , \"name\":\"x\",\"shape\":[2,2],\"datatype\":\"FP32\" } ] , \"outputs\":[{\"name\":\"y\",\"parameters\":{\"binary_data\":true}}] } ",
	"0{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP32\",\"data\":[16777217,0.1000000014901161193847656250000000000001]}]}",
	"0{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP32\",\"data\":[3.4028235677973366e38,1e-46]}]}",
	"0{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP32\",\"data\":[01,2]}]}",
	"0{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP32\",\"data\":[1,2,3]}]}",
	"0{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP32\",\"data\":[[1],[2]]}]}",
	"0{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP32\",\"data\":[NaN,2]}]}",
	"1{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"BOOL\",\"data\":[true,false]}]}",
	"2{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"UINT8\",\"data\":[255,256]}]}",
	"3{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"UINT16\",\"data\":[65535,0]}]}",
	"5{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"UINT64\",\"data\":[18446744073709551615,18446744073709551616]}]}",
	"5{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"UINT64\",\"data\":[18446744073709551615,-0]}]}",
	"6{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"INT8\",\"data\":[-128,-0]}]}",
	"9{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"INT64\",\"data\":[-9223372036854775808,9223372036854775807]}]}",
	"9{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"INT64\",\"data\":[1.0,1e2]}]}",
	":{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP16\",\"data\":[65519.99,0.1]}]}",
	":{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP16\",\"data\":[65520,0.1]}]}",
	";{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"BF16\",\"data\":[1,2]}]}",
	"<{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP64\",\"data\":[1.7976931348623157e308,123456789012345678]}]}",
	"<{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP64\",\"data\":[1e400,0]}]}",
	"={\"parameters\":{\"timeout\":\"1000\",\"priority\":1,\"other\":{\"a\":[1,null,\"s\",{}]}},\"inputs\":[{\"name\":\"b\",\"shape\":[1],\"datatype\":\"INT64\",\"data\":[7]},{\"name\":\"a\",\"shape\":[1,4],\"datatype\":\"FP32\",\"data\":[[1,2,3,4]]}]}",
	"={\"inputs\":[{\"name\":\"b\",\"shape\":[1],\"datatype\":\"INT64\",\"data\":[[7]]}]}",
	"={\"id\":null,\"parameters\":null,\"outputs\":null,\"inputs\":[]}",
	"={\"inputs\":[{\"name\":\"b\",\"name\":\"b\"}]}",
	"={\"inputs\":[{\"name\":\"b\",\"shape\":[4611686018427387904],\"datatype\":\"INT64\",\"data\":[]}]}",
	"={\"parameters\":{\"sequence_id\":1},\"inputs\":[]}",
	"={\"parameters\":{\"a\":[[[[[[[[[[[[1]]]]]]]]]]]]},\"inputs\":[]}",
	"={\"parameters\":{\"a\":[[[[[[[[[1]]]]]]]]]},\"inputs\":[{\"name\":\"b\",\"shape\":[1],\"datatype\":\"INT64\",\"data\":[7]},{\"name\":\"a\",\"shape\":[1,4],\"datatype\":\"FP32\",\"data\":[[1,2,3,4]]}]}",
	"={\"parameters\":{\"a\":[[[[[[[[[[1]]]]]]]]]]},\"inputs\":[{\"name\":\"b\",\"shape\":[1],\"datatype\":\"INT64\",\"data\":[7]},{\"name\":\"a\",\"shape\":[1,4],\"datatype\":\"FP32\",\"data\":[[1,2,3,4]]}]}",
	"6{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"INT8\",\"data\":[128,0]}]}",
	"0{\"id\":\"\\ud83d\\ude00 \\ud83d \\ude00\\u0041 \\ud83d\\u0041\",\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP32\",\"data\":[1.5,-2e3]}]}",
	"={} x",
}

func TestReadersAgree(t *testing.T) {
	for _, b := range bodies {
		spec, body := typed(b[0]-'0'), []byte(b[1:])
		both(t, spec, body, -1, bytes.NewReader(body))
		both(t, spec, body, -1, iotest.OneByteReader(bytes.NewReader(body)))
		for i := range len(body) { // cut short, and with another byte
			both(t, spec, body[:i], -1, bytes.NewReader(body[:i]))
			other := bytes.Clone(body)
			other[i] = "\"{}[],:0e.-\\\xff a"[i%15]
			both(t, spec, other, -1, iotest.HalfReader(bytes.NewReader(other)))
		}
	}
}

func FuzzJSON(f *testing.F) {
	for _, b := range bodies {
		f.Add(b[0]-'0', []byte(b[1:]), uint8(0))
	}
	f.Fuzz(func(t *testing.T, model uint8, body []byte, chunk uint8) {
		both(t, typed(model), body, -1, chunks(body, chunk))
	})
}

// chunks reads so many bytes at a time, 0: all.
func chunks(body []byte, n uint8) io.Reader {
	r := io.Reader(bytes.NewReader(body))
	if n == 0 {
		return r
	}
	return &chunked{r, int(n)}
}

type chunked struct {
	r io.Reader
	n int
}

func (c *chunked) Read(p []byte) (int, error) { return c.r.Read(p[:min(len(p), c.n)]) }

// binaries are requests with tensors behind the text, at '|'.
var binaries = []string{
	"0{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP32\",\"parameters\":{\"binary_data_size\":8}}]}|12345678",
	"0{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP32\",\"parameters\":{\"binary_data_size\":8}}]}|1234567",
	"0{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP32\",\"parameters\":{\"binary_data_size\":8}}]}|123456789",
	"0{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP32\",\"parameters\":{\"binary_data_size\":-8}}]}|12345678",
	"0{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP32\",\"parameters\":{\"binary_data_size\":9223372036854775808}}]}|12345678",
	"0{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP32\",\"parameters\":{\"binary_data_size\":8},\"data\":[1,2]}]}|12345678",
	"1{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"BOOL\",\"parameters\":{\"binary_data_size\":2}}]}|\x01\x00",
	"1{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"BOOL\",\"parameters\":{\"binary_data_size\":2}}]}|\x01\x02",
	";{\"parameters\":{\"binary_data_output\":true},\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"BF16\",\"parameters\":{\"binary_data_size\":4}}],\"outputs\":[{\"name\":\"y\"}]}|1234",
	"={\"inputs\":[{\"name\":\"b\",\"shape\":[1],\"datatype\":\"INT64\",\"parameters\":{\"binary_data_size\":8}},{\"name\":\"a\",\"shape\":[1,4],\"datatype\":\"FP32\",\"data\":[[1,2,3,4]]}]}|12345678",
}

func TestBinaryReadersAgree(t *testing.T) {
	for _, b := range binaries {
		spec := typed(b[0] - '0')
		text, data, _ := strings.Cut(b[1:], "|")
		body := []byte(text + data)
		for _, n := range []int64{int64(len(text)), int64(len(text)) - 1, int64(len(text)) + 1, 0, 1 << 40} {
			both(t, spec, body, n, bytes.NewReader(body))
			both(t, spec, body, n, iotest.OneByteReader(bytes.NewReader(body)))
		}
	}
}

func FuzzBinary(f *testing.F) {
	for _, b := range binaries {
		text, data, _ := strings.Cut(b[1:], "|")
		f.Add(b[0]-'0', []byte(text), []byte(data), int8(0), uint8(0))
	}
	f.Fuzz(func(t *testing.T, model uint8, text, data []byte, off int8, chunk uint8) {
		body := append(bytes.Clone(text), data...)
		both(t, typed(model), body, max(0, int64(len(text))+int64(off)), chunks(body, chunk))
	})
}

// TestNumbers compares numbers of all lengths with strconv.
func TestNumbers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	check := func(text string) {
		n := scanNumber([]byte(text+","), 0)
		require.Equal(t, len(text), n.end, text)
		want, err := strconv.ParseFloat(text, 32)
		got, ok := n.float32([]byte(text))
		require.Equal(t, err == nil, ok, text)
		if ok {
			require.Equal(t, math.Float32bits(float32(want)), math.Float32bits(got), text)
		}
		want, err = strconv.ParseFloat(text, 64)
		got64, ok := n.float64([]byte(text))
		require.Equal(t, err == nil, ok, text)
		if ok {
			require.Equal(t, math.Float64bits(want), math.Float64bits(got64), text)
		}
	}
	for range 30_000 {
		f := math.Float32frombits(rng.Uint32())
		if f-f != 0 {
			continue
		}
		check(strconv.FormatFloat(float64(f), 'g', -1, 32))
		check(strconv.FormatFloat(float64(f), 'f', rng.IntN(12), 32))
		if abs := math.Abs(float64(f)); abs < 1e9 && abs > 1e-9 {
			next := math.Nextafter32(f, 1e38)
			middle := (float64(f) + float64(next)) / 2 // what is nearest depends on the last digit
			check(strconv.FormatFloat(middle, 'f', -1, 64))
			check(strconv.FormatFloat(middle, 'e', 17, 64))
			check(strconv.FormatFloat(middle, 'f', -1, 64) + "1")
		}
		check(strconv.FormatFloat(math.Float64frombits(rng.Uint64()&^(1<<62)), 'g', -1, 64))
	}
}

// request is one as clients write it, of n numbers.
func request(n int, text func(i int) string) ([]byte, *oip.Spec) {
	var b strings.Builder
	fmt.Fprintf(&b, `{"id":"7","inputs":[{"name":"x","shape":[1,%d],"datatype":"FP32","data":[`, n)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(text(i))
	}
	b.WriteString(`]}],"outputs":[{"name":"y"}]}`)
	s := spec()
	s.Inputs = []oip.Tensor{{Name: "x", Type: oip.FP32, Shape: []int64{1, int64(n)}}}
	s.Samples = 0
	return []byte(b.String()), s
}

// TestLongData reads data longer than the buffer, after and before the shape.
func TestLongData(t *testing.T) {
	body, spec := request(20_000, func(i int) string { return strconv.FormatFloat(float64(i)/7, 'f', 9, 64) })
	both(t, spec, body, -1, bytes.NewReader(body))
	early := []byte(`{"inputs":[{"data"` + strings.Split(string(body), `"data"`)[1][:len(strings.Split(string(body), `"data"`)[1])-len(`}],"outputs":[{"name":"y"}]}`)] + `,"name":"x","shape":[1,20000],"datatype":"FP32"}]}`)
	both(t, spec, early, -1, bytes.NewReader(early))
	broken := bytes.Replace(early, []byte("1428.428571429"), []byte("1428.42857142x"), 1)
	require.NotEqual(t, early, broken)
	both(t, spec, broken, -1, bytes.NewReader(broken))
	late := bytes.Replace(early, []byte("20000]"), []byte("20001]"), 1)
	both(t, spec, late, -1, bytes.NewReader(late))
}

// TestLimitOfBody: nothing beyond the limit and what the buffer holds is read.
func TestLimitOfBody(t *testing.T) {
	body, spec := request(20_000, func(int) string { return "0.123456789" })
	var d Reader
	var r Request
	r.Reset(spec)
	source := bytes.NewReader(body)
	d.Reset(source, 50_000)
	err := d.Request(&r, newMemory(1), -1)
	var e *oip.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, oip.TooLarge, e.Code)
	require.Less(t, len(body)-source.Len(), 50_000+bufferSize)
	for limit, code := range map[int]oip.Code{len(body): 0, len(body) - 1: oip.TooLarge} { // to the byte
		r.Reset(spec)
		d.Reset(bytes.NewReader(body), int64(limit))
		if err := d.Request(&r, newMemory(1), -1); code == 0 {
			require.NoError(t, err)
		} else {
			require.ErrorAs(t, err, &e)
			require.Equal(t, code, e.Code)
		}
	}
}

// TestSourceFails: what the transport says is what the caller gets.
func TestSourceFails(t *testing.T) {
	body, spec := request(20_000, func(int) string { return "1" })
	for _, n := range []int{0, 1, 30, 70, 20_000} {
		var d Reader
		var r Request
		r.Reset(spec)
		gone := errors.New("gone")
		d.Reset(io.MultiReader(bytes.NewReader(body[:n]), iotest.ErrReader(gone)), 1<<20)
		require.ErrorIs(t, d.Request(&r, newMemory(1), -1), gone, n)
	}
}

// TestDepth: what is nested deeply is refused after reading as little as that takes.
func TestDepth(t *testing.T) {
	for _, body := range []string{
		`{"parameters":{"a":` + strings.Repeat("[", 1e6),
		`{"inputs":[{"data":` + strings.Repeat("[", 1e6),
		`{"parameters":{"a":` + strings.Repeat(`{"b":`, 1e6),
	} {
		var d Reader
		var r Request
		r.Reset(spec())
		d.Reset(strings.NewReader(body), 1<<30)
		require.ErrorContains(t, d.Request(&r, newMemory(2), -1), "nested deeper than 10")
		require.LessOrEqual(t, d.Received(), int64(bufferSize+enough))
	}
	for _, deep := range []bool{false, true} { // the deepest that is read, and one more
		n := 10
		if deep {
			n++
		}
		var d Reader
		var r Request
		r.Reset(spec())
		d.Reset(strings.NewReader(`{"parameters":{"a":`+strings.Repeat("[", n)+strings.Repeat("]", n)+`}}`), 1<<30)
		require.Equal(t, deep, strings.Contains(d.Request(&r, newMemory(2), -1).Error(), "nested deeper"), "%d", n)
	}
}

func TestReadingAllocatesNothing(t *testing.T) {
	body, spec := request(256, func(i int) string { return strconv.FormatFloat(float64(i)/7, 'f', 17, 64) })
	var d Reader
	var r Request
	mem := newMemory(1)
	source := bytes.NewReader(body)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		source.Reset(body)
		r.Reset(spec)
		d.Reset(source, 1<<20)
		if err := d.Request(&r, mem, -1); err != nil {
			t.Fatal(err)
		}
	}))
	text, data, _ := strings.Cut(binaries[0][1:], "|")
	body, spec = []byte(text+data), typed(0)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		source.Reset(body)
		r.Reset(spec)
		d.Reset(source, 1<<20)
		if err := d.Request(&r, mem, int64(len(text))); err != nil {
			t.Fatal(err)
		}
	}))
}

func BenchmarkReadJSON(b *testing.B) {
	for _, digits := range []int{4, 9, 17, -1} { // -1: as many as a float32 needs
		b.Run(strconv.Itoa(digits), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			body, spec := request(256, func(i int) string {
				if digits < 0 {
					return strconv.FormatFloat(rng.NormFloat64(), 'f', -1, 32)
				}
				return strconv.FormatFloat(rng.Float64(), 'f', digits, 64)
			})
			var d Reader
			var r Request
			mem := newMemory(1)
			source := bytes.NewReader(body)
			b.ReportAllocs()
			for b.Loop() {
				source.Reset(body)
				r.Reset(spec)
				d.Reset(source, 1<<20)
				if err := d.Request(&r, mem, -1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWriteJSON(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	mem := &memory{shapes: [][]int64{{1, 256}}, out: [][]byte{nil}}
	for range 256 {
		mem.out[0] = binary.LittleEndian.AppendUint32(mem.out[0], math.Float32bits(rng.Float32()))
	}
	s := spec()
	var r Request
	r.Reset(s)
	r.Wanted = []Wanted{{}}
	var w Writer
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Answer("m", "1", &r, mem); err != nil {
			b.Fatal(err)
		}
	}
}
