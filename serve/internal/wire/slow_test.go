package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/serve/oip"
)

// memory is the memory of a call in tests.
type memory struct {
	in, out [][]byte
	shapes  [][]int64
}

func (m *memory) Input(i int, shape []int64) ([]byte, error) {
	n := 8
	for _, d := range shape {
		n *= int(d)
	}
	if cap(m.in[i]) < n {
		m.in[i] = make([]byte, n)
	}
	return m.in[i][:n], nil
}

func (m *memory) Run(context.Context) error             { return nil }
func (m *memory) Output(i int) ([]byte, []int64)        { return m.out[i], m.shapes[i] }
func (m *memory) Given(i int) ([]byte, []int64)         { return m.out[i], m.shapes[i] }
func newMemory(inputs int) *memory                      { return &memory{in: make([][]byte, inputs)} }
func (m *memory) Take(i int, s []int64) ([]byte, error) { return m.Input(i, s) }

// slow is the plain reader of requests that the fast one has to agree with: encoding/json makes a tree of the text, and
// the rules are applied to the tree.
type slow struct {
	body []byte
	dec  *json.Decoder
	spec *oip.Spec

	req    Request
	inputs map[int][]byte
	binary []int // inputs whose bytes follow
	sizes  map[int]int
}

type object struct {
	keys   []string
	values []any
}

type slowNumber string

func (o *object) get(key string) any {
	for i, k := range o.keys {
		if k == key {
			return o.values[i]
		}
	}
	return absent{}
}

type absent struct{}

func isNull(v any) bool { return v == nil || v == absent{} }

var errSlow = fmt.Errorf("refused")

func refuseIf(bad bool) {
	if bad {
		panic(errSlow)
	}
}

// tree reads the next value.
func (s *slow) tree() any {
	before := s.dec.InputOffset()
	tok, err := s.dec.Token()
	refuseIf(err != nil)
	raw := bytes.TrimLeft(s.body[before:s.dec.InputOffset()], " \t\r\n,:")
	switch tok := tok.(type) {
	case json.Delim:
		if tok == '[' {
			list := []any{}
			for s.dec.More() {
				list = append(list, s.tree())
			}
			_, err = s.dec.Token()
			refuseIf(err != nil)
			return list
		}
		o := &object{}
		for s.dec.More() {
			o.keys = append(o.keys, s.tree().(string))
			o.values = append(o.values, s.tree())
		}
		_, err = s.dec.Token()
		refuseIf(err != nil)
		return o
	case string:
		refuseIf(len(raw) > maxString+2)
		return tok
	case json.Number:
		refuseIf(len(raw) > maxNumber)
		return slowNumber(tok)
	}
	return tok
}

func depth(v any) int {
	d := 0
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			d = max(d, depth(e))
		}
	case *object:
		for _, e := range v.values {
			d = max(d, depth(e))
		}
	}
	return d + 1
}

func (s *slow) object(v any, keys ...string) *object {
	o, ok := v.(*object)
	refuseIf(!ok)
	for i, k := range o.keys {
		known := keys == nil
		for _, want := range keys {
			known = known || k == want
		}
		refuseIf(!known)
		for j := range i {
			refuseIf(keys != nil && o.keys[j] == k)
		}
	}
	return o
}

func (s *slow) parameters(v any, known ...string) *object {
	if isNull(v) {
		return &object{}
	}
	o := s.object(v)
	max := MaxDepth
	for i := range s.spec.Inputs {
		if n := MaxDepth + len(s.spec.Inputs[i].Shape); n > max {
			max = n
		}
	}
	for i, k := range o.keys {
		refuseIf(s.req.Parameter() != nil)
		isKnown := false
		for _, want := range known {
			if k == want {
				isKnown = true
				for j := range i {
					refuseIf(o.keys[j] == k)
				}
			}
		}
		if !isKnown {
			refuseIf(s.req.Refuse([]byte(k)) != nil)
			refuseIf(depth(o.values[i]) > max)
		}
	}
	return o
}

func integer(v any, most int64, orString bool) int64 {
	n, ok := v.(slowNumber)
	text := string(n)
	if !ok {
		text, ok = v.(string)
		refuseIf(!ok || !orString || strings.ContainsAny(text, "+-_") || len(text) > 1 && text[0] == '0')
	}
	i, err := strconv.ParseInt(text, 10, 64)
	refuseIf(err != nil || i < 0 || i > most)
	return i
}

func (s *slow) request(header int64) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if e, ok := p.(error); !ok || e != errSlow {
				panic(p)
			}
			err = errSlow
		}
	}()
	text, tail := s.body, []byte(nil)
	if header >= 0 {
		refuseIf(header > int64(len(s.body)))
		text, tail = s.body[:header], s.body[header:]
	}
	refuseIf(!json.Valid(text) || !utf8.Valid(text))
	s.req.Reset(s.spec)
	s.inputs, s.sizes = map[int][]byte{}, map[int]int{}
	s.dec = json.NewDecoder(bytes.NewReader(text))
	s.dec.UseNumber()
	o := s.object(s.tree(), "id", "parameters", "inputs", "outputs")
	if id := o.get("id"); !isNull(id) {
		id, ok := id.(string)
		refuseIf(!ok || s.req.SetID([]byte(id)) != nil)
	}
	p := s.parameters(o.get("parameters"), "timeout", "priority", "binary_data_output", "popefgen_contract")
	for i, k := range p.keys {
		switch v := p.values[i]; k {
		case "timeout":
			integer(v, math.MaxInt64/1000, true)
		case "priority":
			s.req.Priority = uint64(integer(v, math.MaxInt64, true))
		case "binary_data_output":
			b, ok := v.(bool)
			refuseIf(!ok)
			s.req.Binary = b
		case "popefgen_contract":
			h, ok := v.(string)
			refuseIf(!ok || s.req.SetContract([]byte(h)) != nil)
		}
	}
	list, ok := o.get("inputs").([]any)
	refuseIf(!ok || len(list) > MaxTensors)
	for _, v := range list {
		s.input(v)
	}
	if v := o.get("outputs"); !isNull(v) {
		list, ok := v.([]any)
		refuseIf(!ok || len(list) > MaxTensors)
		for _, v := range list {
			s.output(v)
		}
	}
	for _, i := range s.binary {
		refuseIf(header < 0 || len(tail) < s.sizes[i])
		s.inputs[i], tail = tail[:s.sizes[i]], tail[s.sizes[i]:]
		refuseIf(s.spec.Inputs[i].Type == oip.Bool && bytes.ContainsFunc(s.inputs[i], func(r rune) bool { return r > 1 }))
	}
	refuseIf(len(tail) > 0)
	refuseIf(s.req.Done() != nil)
	return nil
}

func (s *slow) input(v any) {
	o := s.object(v, "name", "datatype", "shape", "parameters", "data")
	name, ok := o.get("name").(string)
	refuseIf(!ok)
	typ, ok := o.get("datatype").(string)
	refuseIf(!ok)
	list, ok := o.get("shape").([]any)
	refuseIf(!ok || len(list) > maxRank)
	shape := []int64{}
	for _, v := range list {
		n, ok := v.(slowNumber)
		refuseIf(!ok)
		i, err := strconv.ParseInt(string(n), 10, 64)
		refuseIf(err != nil)
		shape = append(shape, i)
	}
	index, size, err := s.req.Input([]byte(name), []byte(typ), shape)
	refuseIf(err != nil)
	p := s.parameters(o.get("parameters"), "binary_data_size")
	data, follows := o.get("data"), p.get("binary_data_size")
	hasData, isBinary := data != absent{}, follows != absent{}
	refuseIf(hasData == isBinary)
	if isBinary {
		refuseIf(integer(follows, math.MaxInt64, false) != int64(size))
		s.binary = append(s.binary, index)
		s.sizes[index] = size
		return
	}
	list, ok = data.([]any)
	refuseIf(!ok)
	t := s.spec.Inputs[index].Type
	refuseIf(t == oip.BF16)
	if len(list) > 0 {
		if _, nested := list[0].([]any); nested {
			list = flatten(list, shape)
		}
	}
	refuseIf(len(list)*t.Size() != size)
	out := []byte{}
	for _, v := range list {
		out = appendSlow(out, t, v)
	}
	s.inputs[index] = out
}

func flatten(list []any, shape []int64) []any {
	refuseIf(len(shape) == 0 || int64(len(list)) != shape[0])
	if len(shape) == 1 {
		return list
	}
	var all []any
	for _, v := range list {
		l, ok := v.([]any)
		refuseIf(!ok)
		all = append(all, flatten(l, shape[1:])...)
	}
	return all
}

func appendSlow(b []byte, t oip.DataType, v any) []byte {
	if t == oip.Bool {
		v, ok := v.(bool)
		refuseIf(!ok)
		if v {
			return append(b, 1)
		}
		return append(b, 0)
	}
	n, ok := v.(slowNumber)
	refuseIf(!ok)
	text := string(n)
	bits := 8 * t.Size()
	put := func(v uint64) []byte { return append(b, binary.LittleEndian.AppendUint64(nil, v)[:t.Size()]...) }
	switch t {
	case oip.FP16, oip.FP64:
		f, err := strconv.ParseFloat(text, 64)
		refuseIf(err != nil)
		if t == oip.FP64 {
			return put(math.Float64bits(f))
		}
		h := num.Float16From64(f)
		refuseIf(math.IsInf(float64(h.Float32()), 0))
		return put(uint64(h))
	case oip.FP32:
		f, err := strconv.ParseFloat(text, 32)
		refuseIf(err != nil)
		return put(uint64(math.Float32bits(float32(f))))
	case oip.Int8, oip.Int16, oip.Int32, oip.Int64:
		i, err := strconv.ParseInt(text, 10, bits)
		refuseIf(err != nil)
		return put(uint64(i))
	}
	u, err := strconv.ParseUint(text, 10, bits)
	refuseIf(err != nil)
	return put(u)
}

func (s *slow) output(v any) {
	o := s.object(v, "name", "parameters")
	name, ok := o.get("name").(string)
	refuseIf(!ok)
	p := s.parameters(o.get("parameters"), "binary_data", "classification")
	i, err := s.req.Output([]byte(name))
	refuseIf(err != nil)
	w := &s.req.Wanted[i]
	w.Binary = s.req.Binary
	if v := p.get("binary_data"); v != (absent{}) {
		b, ok := v.(bool)
		refuseIf(!ok)
		w.Binary = b
	}
	if v := p.get("classification"); v != (absent{}) {
		w.Classes = int(integer(v, math.MaxInt32, false))
	}
}
