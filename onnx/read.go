package onnx

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/internal/printable"
)

// ErrFormat is wrapped by every error about bytes that are not what ONNX's
// protobuf schema says.
var ErrFormat = errors.New("not a valid ONNX file")

// MaxDepth is how deep the subgraphs and functions of a model may be nested.
const MaxDepth = 64

// MaxName is how many bytes a name, which errors repeat, may have.
const MaxName = 1 << 14

// ReadFile reads the ONNX model at path. Tensor data in external files is
// read from the model's own directory and nowhere else. The error names the
// file, the place in the model and the byte offset.
func ReadFile(path string) (*Model, error) { return ReadFileContext(context.Background(), path) }

// ReadFileContext is [ReadFile] until ctx is done, whose error it then returns.
func ReadFileContext(ctx context.Context, path string) (*Model, error) {
	b, err := contents(ctx, path)
	if err != nil {
		return nil, err // which says what was done to which file
	}
	m, err := decode(ctx, b, filepath.Dir(path))
	if errors.Is(err, ErrFormat) {
		return nil, fmt.Errorf("%s: %w; hint: it is damaged or incomplete: copy or export it again", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	m.Path = path
	return m, nil
}

// Decode reads an ONNX ModelProto. External tensor data is looked for in dir;
// an empty dir refuses it. Tensors may share memory with b, which must not
// change afterwards.
func Decode(b []byte, dir string) (*Model, error) { return decode(context.Background(), b, dir) }

// decode is [Decode] until ctx is done; memory counts on the budget of ctx.
func decode(ctx context.Context, b []byte, dir string) (*Model, error) {
	r := newReader(ctx, len(b))
	r.dir = dir
	defer r.close()
	m := &Model{}
	err := r.fields(view{b, 0}, "model", func(f field) error {
		var err error
		switch f.num {
		case 1:
			m.IRVersion, err = f.int()
		case 2:
			m.ProducerName, err = f.str()
		case 3:
			m.ProducerVersion, err = f.str()
		case 7:
			if m.Graph != nil {
				return f.errorf("a second graph")
			}
			m.Graph, err = sub(f, func(v view) (*Graph, error) { return r.graph(v, 0) })
		case 8:
			var o Opset
			if o, err = sub(f, r.opset); err == nil {
				m.Opsets = append(m.Opsets, o)
			}
		case 25:
			var fn *Function
			if fn, err = sub(f, r.function); err == nil {
				m.Functions = append(m.Functions, fn)
			}
		default:
			err = r.keep(&m.Other, f)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	m.Size = int64(len(b))
	for at := range r.regions {
		m.Size += at.length
	}
	if m.Graph == nil {
		return nil, fmt.Errorf("%w: it holds no graph (want a ModelProto as exporters write it)", ErrFormat)
	}
	if len(m.Opsets) == 0 && m.IRVersion < 3 {
		m.Opsets = []Opset{{Version: 1}} // before IR 3 a model could not say
	}
	return m, nil
}

// view is a part of the file with its offset, for messages.
type view struct {
	b   []byte
	off int
}

// field is one field of a protobuf message.
type field struct {
	num  protowire.Number
	typ  protowire.Type
	v    view   // BytesType: the contents
	u    uint64 // VarintType, Fixed32Type, Fixed64Type
	what string // the message it stands in
	raw  []byte // all of it, with its tag
}

func (f field) errorf(format string, args ...any) error {
	return fmt.Errorf("%w: %s at offset %#x, field %d: %s", ErrFormat, f.what, f.v.off, f.num, fmt.Sprintf(format, args...))
}

func (f field) int() (int64, error) {
	if f.typ != protowire.VarintType {
		return 0, f.errorf("found wire type %d, want an integer", f.typ)
	}
	return int64(f.u), nil
}

func (f field) bytes() ([]byte, error) {
	if f.typ != protowire.BytesType {
		return nil, f.errorf("found wire type %d, want bytes", f.typ)
	}
	return f.v.b, nil
}

func (f field) str() (string, error) {
	b, err := f.bytes()
	if len(b) > MaxName {
		return "", f.errorf("a name of %d bytes, want at most %d", len(b), MaxName)
	}
	return string(b), err
}

func (f field) float() (float32, error) {
	if f.typ != protowire.Fixed32Type {
		return 0, f.errorf("found wire type %d, want a float", f.typ)
	}
	return math.Float32frombits(uint32(f.u)), nil
}

// sub decodes the message in f.
func sub[T any](f field, decode func(view) (T, error)) (T, error) {
	if _, err := f.bytes(); err != nil {
		var zero T
		return zero, err
	}
	return decode(f.v)
}

// repeated appends the numbers of a repeated scalar field, packed or not.
func repeated[T any](r *reader, f field, typ protowire.Type, to []T, conv func(uint64) T) ([]T, error) {
	// Lists that grow are half empty at worst.
	if err := r.take(16*int64(max(1, len(f.v.b))), "the lists of numbers of the file, up to offset %#x (%s)", f.v.off, f.what); err != nil {
		return nil, err
	}
	if f.typ == typ {
		return append(to, conv(f.u)), nil
	}
	b, err := f.bytes()
	if err != nil {
		return nil, err
	}
	width := map[protowire.Type]int{protowire.Fixed32Type: 4, protowire.Fixed64Type: 8}[typ]
	if width > 0 && to == nil {
		to = make([]T, 0, len(b)/width)
	}
	for len(b) > 0 {
		var u uint64
		var n int
		switch typ {
		case protowire.VarintType:
			u, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var u32 uint32
			u32, n = protowire.ConsumeFixed32(b)
			u = uint64(u32)
		default:
			u, n = protowire.ConsumeFixed64(b)
		}
		if n < 0 {
			return nil, f.errorf("a packed list ends in the middle of a number")
		}
		to = append(to, conv(u))
		b = b[n:]
	}
	return to, nil
}

func asInt64(u uint64) int64     { return int64(u) }
func asUint64(u uint64) uint64   { return u }
func asFloat32(u uint64) float32 { return math.Float32frombits(uint32(u)) }
func asFloat64(u uint64) float64 { return math.Float64frombits(u) }

type reader struct {
	dir     string
	root    *os.Root
	ctx     context.Context
	memory  *budget.Budget    // of ctx
	parts   int64             // bytes that the file's messages have become
	most    int64             // of parts
	regions map[region][]byte // of external files, each read once
}

// region is a part of an external file.
type region struct {
	file        string
	off, length int64
}

// What messages become in memory takes some times their size at most; what takes
// more is made of millions of empty ones.
const (
	partsBytes  = 64 << 20
	partsFactor = 32
	partBytes   = 288 // of the greatest message
)

// newReader returns a reader of a file of size bytes.
func newReader(ctx context.Context, size int) *reader {
	return &reader{ctx: ctx, memory: budget.From(ctx), most: budget.Add(partsBytes, budget.Mul(partsFactor, int64(size))), regions: map[region][]byte{}}
}

// take counts what n bytes of messages become. There are many calls of it, so it
// looks at the context.
func (r *reader) take(n int64, what string, args ...any) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if n > r.most-r.parts {
		return &budget.Error{What: fmt.Sprintf(what, args...), Need: n, Used: r.parts, Limit: r.most}
	}
	if err := r.memory.Take(n, what, args...); err != nil {
		return err
	}
	r.parts += n
	return nil
}

func (r *reader) close() {
	if r.root != nil {
		r.root.Close()
	}
}

// fields calls fn for every field of the message in v.
func (r *reader) fields(v view, what string, fn func(field) error) error {
	if err := r.take(partBytes, "the messages of the file, up to offset %#x (%s)", v.off, what); err != nil {
		return err
	}
	for b, off := v.b, v.off; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: %s at offset %#x: no field starts here: %v", ErrFormat, what, off, protowire.ParseError(n))
		}
		f := field{num: num, typ: typ, what: what, v: view{nil, off}}
		body := b[n:]
		var m int
		switch typ {
		case protowire.VarintType:
			f.u, m = protowire.ConsumeVarint(body)
		case protowire.Fixed32Type:
			var u uint32
			u, m = protowire.ConsumeFixed32(body)
			f.u = uint64(u)
		case protowire.Fixed64Type:
			f.u, m = protowire.ConsumeFixed64(body)
		case protowire.BytesType:
			f.v.b, m = protowire.ConsumeBytes(body)
			f.v.off = off + n + m - len(f.v.b)
		default:
			m = protowire.ConsumeFieldValue(num, typ, body)
		}
		if m < 0 {
			return fmt.Errorf("%w: %s at offset %#x: field %d: %v (%d bytes are left)", ErrFormat, what, off, num, protowire.ParseError(m), len(body))
		}
		f.raw = b[: n+m : n+m]
		if err := fn(f); err != nil {
			return err
		}
		b, off = b[n+m:], off+n+m
	}
	return nil
}

// keep adds a field that is not read to those of a message. The first shares memory with the file.
func (r *reader) keep(to *[]byte, f field) error {
	if *to == nil {
		*to = f.raw
		return nil
	}
	if err := r.take(2*int64(len(f.raw)), "fields of the file that are kept as they are, up to offset %#x (%s)", f.v.off, f.what); err != nil {
		return err
	}
	*to = append(*to, f.raw...)
	return nil
}

func (r *reader) opset(v view) (Opset, error) {
	var o Opset
	err := r.fields(v, "opset import", func(f field) (err error) {
		switch f.num {
		case 1:
			o.Domain, err = f.str()
		case 2:
			o.Version, err = f.int()
		}
		return err
	})
	if o.Domain == "ai.onnx" {
		o.Domain = ""
	}
	return o, err
}

func (r *reader) function(v view) (*Function, error) {
	fn := &Function{}
	err := r.fields(v, "function", func(f field) (err error) {
		var s string
		switch f.num {
		case 1:
			fn.Name, err = f.str()
		case 4:
			s, err = f.str()
			fn.Inputs = append(fn.Inputs, s)
		case 5:
			s, err = f.str()
			fn.Outputs = append(fn.Outputs, s)
		case 6:
			s, err = f.str()
			fn.Attributes = append(fn.Attributes, s)
		case 7:
			var n *Node
			if n, err = sub(f, func(v view) (*Node, error) { return r.node(v, 1) }); err == nil {
				fn.Nodes = append(fn.Nodes, n)
			}
		case 9:
			var o Opset
			if o, err = sub(f, r.opset); err == nil {
				fn.Opsets = append(fn.Opsets, o)
			}
		case 10:
			fn.Domain, err = f.str()
		case 11:
			var a *Attribute
			if a, err = sub(f, func(v view) (*Attribute, error) { return r.attribute(v, 1) }); err == nil {
				fn.Defaults = append(fn.Defaults, a)
			}
		case 13:
			fn.Overload, err = f.str()
		default:
			err = r.keep(&fn.Other, f)
		}
		return err
	})
	if fn.Domain == "ai.onnx" {
		fn.Domain = ""
	}
	return fn, err
}

func (r *reader) graph(v view, depth int) (*Graph, error) {
	if depth > MaxDepth {
		return nil, fmt.Errorf("%w: subgraphs are nested more than %d deep at offset %#x", ErrFormat, MaxDepth, v.off)
	}
	g := &Graph{}
	err := r.fields(v, "graph", func(f field) (err error) {
		switch f.num {
		case 1:
			var n *Node
			if n, err = sub(f, func(v view) (*Node, error) { return r.node(v, depth) }); err == nil {
				g.Nodes = append(g.Nodes, n)
			}
		case 2:
			g.Name, err = f.str()
		case 5:
			var t *Tensor
			if t, err = sub(f, r.tensor); err == nil {
				g.Initializers = append(g.Initializers, t)
			}
		case 11:
			g.Inputs, err = r.appendValue(g.Inputs, f)
		case 12:
			g.Outputs, err = r.appendValue(g.Outputs, f)
		case 13:
			g.Values, err = r.appendValue(g.Values, f)
		case 15:
			return f.errorf("sparse initializers are not supported; convert the model to dense initializers")
		default:
			err = r.keep(&g.Other, f)
		}
		return err
	})
	return g, err
}

func (r *reader) appendValue(to []ValueInfo, f field) ([]ValueInfo, error) {
	v, err := sub(f, r.value)
	return append(to, v), err
}

func (r *reader) node(v view, depth int) (*Node, error) {
	n := &Node{}
	err := r.fields(v, "node", func(f field) (err error) {
		var s string
		switch f.num {
		case 1:
			s, err = f.str()
			n.Inputs = append(n.Inputs, s)
		case 2:
			s, err = f.str()
			n.Outputs = append(n.Outputs, s)
		case 3:
			n.Name, err = f.str()
		case 4:
			n.OpType, err = f.str()
		case 5:
			var a *Attribute
			if a, err = sub(f, func(v view) (*Attribute, error) { return r.attribute(v, depth) }); err == nil {
				n.Attributes = append(n.Attributes, a)
			}
		case 7:
			n.Domain, err = f.str()
		case 8:
			n.Overload, err = f.str()
		default:
			err = r.keep(&n.Other, f)
		}
		return err
	})
	if n.Domain == "ai.onnx" {
		n.Domain = ""
	}
	if err != nil && n.OpType != "" {
		err = fmt.Errorf("node %q (%s): %w", n.Name, printable.Line(n.OpType), err)
	}
	return n, err
}

func (r *reader) attribute(v view, depth int) (*Attribute, error) {
	a := &Attribute{}
	seen := AttrUndefined // for files older than the type field
	err := r.fields(v, "attribute", func(f field) (err error) {
		set := AttrUndefined
		switch f.num {
		case 1:
			a.Name, err = f.str()
		case 2:
			set = AttrFloat
			a.Float, err = f.float()
		case 3:
			set = AttrInt
			a.Int, err = f.int()
		case 4:
			set = AttrString
			a.String, err = f.bytes()
		case 5:
			set = AttrTensor
			a.Tensor, err = sub(f, r.tensor)
		case 6:
			set = AttrGraph
			a.Graph, err = sub(f, func(v view) (*Graph, error) { return r.graph(v, depth+1) })
		case 7:
			set = AttrFloats
			a.Floats, err = repeated(r, f, protowire.Fixed32Type, a.Floats, asFloat32)
		case 8:
			set = AttrInts
			a.Ints, err = repeated(r, f, protowire.VarintType, a.Ints, asInt64)
		case 9:
			set = AttrStrings
			var b []byte
			b, err = f.bytes()
			a.Strings = append(a.Strings, b)
		case 10:
			set = AttrTensors
			var t *Tensor
			t, err = sub(f, r.tensor)
			a.Tensors = append(a.Tensors, t)
		case 11:
			set = AttrGraphs
			var g *Graph
			g, err = sub(f, func(v view) (*Graph, error) { return r.graph(v, depth+1) })
			a.Graphs = append(a.Graphs, g)
		case 20:
			var t int64
			t, err = f.int()
			a.Type = AttributeType(t)
		case 21:
			a.Ref, err = f.str()
		default:
			err = r.keep(&a.Other, f)
		}
		if set != AttrUndefined {
			seen = set
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("attribute %q: %w", a.Name, err)
	}
	if a.Type == AttrUndefined {
		a.Type = seen
	}
	switch {
	case a.Type == AttrTensor && a.Tensor == nil && a.Ref == "":
		return nil, fmt.Errorf("%w: attribute %q says it is a tensor and holds none", ErrFormat, a.Name)
	case a.Type == AttrGraph && a.Graph == nil && a.Ref == "":
		return nil, fmt.Errorf("%w: attribute %q says it is a graph and holds none", ErrFormat, a.Name)
	}
	return a, nil
}
