package grpcserve

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/popefgen/popefgen/serve/grpc/internal/inference"
	"github.com/popefgen/popefgen/serve/internal/agree"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

// read is what a request says.
type read struct {
	inputs       [][]byte
	id, contract string
	timeout      time.Duration
	priority     uint64
	wanted       []wire.Wanted
	samples      int
}

// models are those that requests of this file are for, by name.
var models = func() map[string]*testmodel.Model {
	all := map[string]*testmodel.Model{"simple": testmodel.Simple()}
	for _, m := range identities() {
		all[m.Spec().Name] = m.(*testmodel.Model)
	}
	return all
}()

var errUnknown = errors.New("unknown model")

// keeps is the memory of a call that remembers its inputs.
type keeps struct {
	oip.Call
	inputs [][]byte
}

func (k *keeps) Input(i int, shape []int64) ([]byte, error) {
	b, err := k.Call.Input(i, shape)
	for len(k.inputs) <= i {
		k.inputs = append(k.inputs, nil)
	}
	k.inputs[i] = b
	return b, err
}

// fast reads a request as the server does.
func fast(p *wire.Proto, segments [][]byte) (*read, error) {
	defer p.Reset()
	if err := p.Scan(segments); err != nil {
		return nil, err
	}
	m := models[string(p.Name)]
	if m == nil {
		return nil, errUnknown
	}
	var r wire.Request
	r.Reset(m.Spec())
	k := &keeps{Call: m.NewCall()}
	if err := p.Request(&r, k); err != nil {
		return nil, err
	}
	return told(&r, k), nil
}

func told(r *wire.Request, k *keeps) *read {
	return &read{inputs: k.inputs, id: string(r.ID), contract: string(r.Contract), timeout: r.Timeout, priority: r.Priority, wanted: r.Wanted, samples: r.Samples()}
}

// slow reads a request by protobuf's own code, and then checks it field by field.
func slow(data []byte) (*read, error) {
	var q pb.ModelInferRequest
	if err := proto.Unmarshal(data, &q); err != nil {
		return nil, err
	}
	m := models[q.ModelName]
	if m == nil {
		return nil, errUnknown
	}
	var r wire.Request
	r.Reset(m.Spec())
	if err := r.SetID([]byte(q.Id)); err != nil {
		return nil, err
	}
	if len(q.RawInputContents) > 0 && len(q.RawInputContents) != len(q.Inputs) {
		return nil, errors.New("count")
	}
	raw := true
	for key, v := range q.Parameters {
		switch key {
		case "timeout":
			n, err := whole(v, math.MaxInt64/uint64(time.Microsecond))
			if err != nil {
				return nil, err
			}
			r.Timeout = time.Duration(n) * time.Microsecond
		case "priority":
			n, err := whole(v, math.MaxInt64)
			if err != nil {
				return nil, err
			}
			r.Priority = n
		case "binary_data_output":
			b, ok := v.GetParameterChoice().(*pb.InferParameter_BoolParam)
			if !ok {
				return nil, errors.New(key)
			}
			raw = b.BoolParam
		case agree.Parameter:
			s, ok := v.GetParameterChoice().(*pb.InferParameter_StringParam)
			if !ok {
				return nil, errors.New(key)
			}
			if err := r.SetContract([]byte(s.StringParam)); err != nil {
				return nil, err
			}
		default:
			if err := r.Refuse([]byte(key)); err != nil {
				return nil, err
			}
		}
	}
	k := &keeps{Call: m.NewCall()}
	for i, in := range q.Inputs {
		index, size, err := r.Input([]byte(in.Name), []byte(in.Datatype), in.Shape)
		if err != nil {
			return nil, err
		}
		for key := range in.Parameters {
			if err := r.Refuse([]byte(key)); err != nil {
				return nil, err
			}
		}
		dst, err := k.Input(index, in.Shape)
		if err != nil {
			return nil, err
		}
		from := []byte(nil)
		if len(q.RawInputContents) > 0 {
			if in.Contents != nil {
				return nil, errors.New("both")
			}
			from = q.RawInputContents[i]
		} else if from, err = elements(m.Spec().Inputs[index].Type, in.Contents); err != nil {
			return nil, err
		}
		if len(from) != size {
			return nil, errors.New("size")
		}
		copy(dst, from)
		if m.Spec().Inputs[index].Type == oip.Bool && bytes.ContainsFunc(from, func(c rune) bool { return c > 1 }) {
			return nil, errors.New("bool")
		}
	}
	for _, o := range q.Outputs {
		i, err := r.Output([]byte(o.Name))
		if err != nil {
			return nil, err
		}
		for key, v := range o.Parameters {
			switch key {
			case "classification":
				n, err := whole(v, math.MaxInt32)
				if err != nil {
					return nil, err
				}
				r.Wanted[i].Classes = int(n)
			case "binary_data":
				b, ok := v.GetParameterChoice().(*pb.InferParameter_BoolParam)
				if !ok {
					return nil, errors.New(key)
				}
				raw = b.BoolParam
			default:
				if err := r.Refuse([]byte(key)); err != nil {
					return nil, err
				}
			}
		}
	}
	r.Binary = raw
	if err := r.Done(); err != nil {
		return nil, err
	}
	return told(&r, k), nil
}

func whole(v *pb.InferParameter, most uint64) (uint64, error) {
	var n uint64
	switch c := v.GetParameterChoice().(type) {
	case *pb.InferParameter_Int64Param:
		n = uint64(c.Int64Param)
	case *pb.InferParameter_Uint64Param:
		n = c.Uint64Param
	case *pb.InferParameter_StringParam:
		if strings.Trim(c.StringParam, "0123456789") != "" || c.StringParam == "" {
			return 0, errors.New("no number")
		}
		if _, err := fmt.Sscan(strings.TrimLeft(c.StringParam, "0")+" ", &n); err != nil && strings.Trim(c.StringParam, "0") != "" {
			return 0, err
		}
	default:
		return 0, errors.New("no number")
	}
	if n > most {
		return 0, errors.New("too large")
	}
	return n, nil
}

// elements returns the bytes of contents, which may have those of the type alone.
func elements(t oip.DataType, c *pb.InferTensorContents) ([]byte, error) {
	var b []byte
	counts := []int{len(c.GetBoolContents()), len(c.GetIntContents()), len(c.GetInt64Contents()), len(c.GetUintContents()), len(c.GetUint64Contents()), len(c.GetFp32Contents()), len(c.GetFp64Contents()), len(c.GetBytesContents())}
	field := map[oip.DataType]int{oip.Bool: 0, oip.Int8: 1, oip.Int16: 1, oip.Int32: 1, oip.Int64: 2, oip.Uint8: 3, oip.Uint16: 3, oip.Uint32: 3, oip.Uint64: 4, oip.FP32: 5, oip.FP64: 6}
	of, ok := field[t]
	for i, n := range counts {
		if n > 0 && (!ok || i != of) {
			return nil, errors.New("another type")
		}
	}
	le := binary.LittleEndian
	for _, v := range c.GetBoolContents() {
		b = append(b, map[bool]byte{true: 1}[v])
	}
	for _, v := range c.GetIntContents() {
		switch {
		case t == oip.Int8 && v == int32(int8(v)):
			b = append(b, byte(v))
		case t == oip.Int16 && v == int32(int16(v)):
			b = le.AppendUint16(b, uint16(v))
		case t == oip.Int32:
			b = le.AppendUint32(b, uint32(v))
		default:
			return nil, errors.New("range")
		}
	}
	for _, v := range c.GetInt64Contents() {
		b = le.AppendUint64(b, uint64(v))
	}
	for _, v := range c.GetUintContents() {
		switch {
		case t == oip.Uint8 && v == uint32(uint8(v)):
			b = append(b, byte(v))
		case t == oip.Uint16 && v == uint32(uint16(v)):
			b = le.AppendUint16(b, uint16(v))
		case t == oip.Uint32:
			b = le.AppendUint32(b, v)
		default:
			return nil, errors.New("range")
		}
	}
	for _, v := range c.GetUint64Contents() {
		b = le.AppendUint64(b, v)
	}
	for _, v := range c.GetFp32Contents() {
		b = le.AppendUint32(b, math.Float32bits(v))
	}
	for _, v := range c.GetFp64Contents() {
		b = le.AppendUint64(b, math.Float64bits(v))
	}
	return b, nil
}

// limits are what the errors say of requests that protobuf takes and this server does not.
var limits = []string{"more than", "expected at most", "too deep in each other"}

// same reads a request in both ways, cut into segments where cuts say, and wants the same from both.
func same(t *testing.T, data []byte, cuts uint64) {
	t.Helper()
	var segments [][]byte
	random := rand.New(rand.NewPCG(cuts, 1))
	for rest := data; len(rest) > 0; {
		n := len(rest)
		if cuts > 0 {
			n = min(n, random.IntN(2+int(cuts%64)))
		}
		segments = append(segments, rest[:n])
		rest = rest[n:]
	}
	var p wire.Proto
	got, err := fast(&p, segments)
	want, wantErr := slow(data)
	if err != nil && wantErr == nil {
		for _, l := range limits {
			if strings.Contains(err.Error(), l) {
				return
			}
		}
		// Of a parameter that is given twice protobuf sees the last alone.
		if strings.HasPrefix(err.Error(), "parameter '") {
			return
		}
	}
	require.Equal(t, wantErr == nil, err == nil, "protobuf: %v; here: %v", wantErr, err)
	if err != nil {
		return
	}
	require.Equal(t, want, got)
}

// requests are messages to begin from.
func requests() (all [][]byte) {
	add := func(q *pb.ModelInferRequest) {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(q)
		if err != nil {
			panic(err)
		}
		all = append(all, b)
	}
	q, _ := simple(2)
	q.Id = "7"
	q.Parameters = map[string]*pb.InferParameter{
		"timeout":       {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: 5}},
		"priority":      {ParameterChoice: &pb.InferParameter_StringParam{StringParam: "1"}},
		agree.Parameter: {ParameterChoice: &pb.InferParameter_StringParam{StringParam: strings.Repeat("0f", 32)}},
		"double":        {ParameterChoice: &pb.InferParameter_DoubleParam{DoubleParam: 1}},
	}
	q.Outputs = []*pb.ModelInferRequest_InferRequestedOutputTensor{{Name: "OUTPUT1", Parameters: map[string]*pb.InferParameter{
		"classification": {ParameterChoice: &pb.InferParameter_Uint64Param{Uint64Param: 3}}, "binary_data": {ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: false}}}}}
	add(q)
	for _, typ := range testmodel.Types {
		data := make([]byte, 5*typ.Size())
		for i := range data {
			data[i] = byte(i*77) & 1
		}
		in := &pb.ModelInferRequest_InferInputTensor{Name: "INPUT0", Datatype: typ.String(), Shape: []int64{1, 5}}
		add(&pb.ModelInferRequest{ModelName: "identity_" + typ.String(), Inputs: []*pb.ModelInferRequest_InferInputTensor{in}, RawInputContents: [][]byte{data}})
		if in.Contents = held(typ, data); in.Contents != nil {
			add(&pb.ModelInferRequest{ModelName: "identity_" + typ.String(), Inputs: []*pb.ModelInferRequest_InferInputTensor{in}})
		}
	}
	// By hand: what protobuf's own writer never writes.
	field := func(n protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
	}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	group := func(n protowire.Number, inside []byte) []byte {
		return protowire.AppendTag(append(protowire.AppendTag(nil, n, protowire.StartGroupType), inside...), n, protowire.EndGroupType)
	}
	floats := make([]byte, 20)
	one := protowire.AppendFixed32(protowire.AppendTag(nil, 6, protowire.Fixed32Type), 1)
	name, typ := field(1, []byte("INPUT0")), field(2, []byte("FP32"))
	axis := func(n uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), n)
	}
	model := field(1, []byte("identity_FP32"))
	all = append(all,
		join(field(7, floats), field(5, join(field(3, []byte{1, 5}), typ, name)), model),                                                // raw bytes first
		join(field(1, []byte("simple")), model, field(5, join(axis(1), axis(5), typ, name)), field(7, floats)),                          // last name counts, shape unpacked
		join(model, field(5, join(name, typ, axis(1), field(5, join(one, one)), field(3, []byte{5}), field(5, field(6, floats[:12]))))), // contents in two pieces, packed and not
		join(group(9, group(10, field(1, nil))), model, field(5, join(group(8, nil), name, typ, axis(1), axis(5))), field(7, floats)),
		join(model, field(5, join(name, typ, axis(1), axis(5))), field(7, floats), protowire.AppendTag(nil, 9, protowire.EndGroupType)),
		join(model, []byte{0x80}), join(model, []byte{0x38, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}),
		join(model, protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 5)), // a name that is a number is unknown
		join(field(1, []byte("\xff")), model), []byte{7}, []byte{0x00}, nil,
	)
	for _, b := range all[:4] {
		all = append(all, b[:len(b)-1], b[:len(b)/2])
	}
	deep := field(7, floats)
	for range 40 {
		deep = group(11, deep)
	}
	return append(all, join(model, deep))
}

// FuzzRequest compares our reader with protobuf's, on any bytes in any segments.
func FuzzRequest(f *testing.F) {
	for i, b := range requests() {
		f.Add(b, uint64(i))
	}
	f.Fuzz(func(t *testing.T, data []byte, cuts uint64) { same(t, data, cuts) })
}

// TestSegments reads every request cut at every byte, and with each byte changed.
func TestSegments(t *testing.T) {
	for i, b := range requests() {
		same(t, b, 0)
		same(t, b, 1<<6) // single bytes, or none
		for at := range b {
			same(t, b[:at], uint64(i+at))
			for _, v := range []byte{0, 1, 0x7f, 0x80, 0xff, b[at] ^ 8, b[at] + 1} {
				c := bytes.Clone(b)
				c[at] = v
				same(t, c, uint64(at))
			}
		}
	}
}

// TestDecodeAllocates wants that reading a request and writing its answer take no memory once they have it.
func TestDecodeAllocates(t *testing.T) {
	q, _ := simple(4)
	data, err := proto.Marshal(q)
	require.NoError(t, err)
	m := models["simple"]
	c := m.NewCall()
	var r wire.Request
	var p wire.Proto
	var w wire.ProtoWriter
	segments := [][]byte{data[:100], data[100:]}
	answer := make([]byte, 0, 4096)
	once := func() {
		r.Reset(m.Spec())
		if err := errors.Join(p.Scan(segments), p.Request(&r, c), c.Run(context.Background())); err != nil {
			t.Error(err)
		}
		w.Answer("1", &r, c)
		answer = w.AppendTo(answer[:0])
	}
	once()
	require.Zero(t, testing.AllocsPerRun(100, once))
}
