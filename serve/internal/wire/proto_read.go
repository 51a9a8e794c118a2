package wire

import (
	"math"
	"time"

	"github.com/popefgen/popefgen/serve/internal/agree"
	"github.com/popefgen/popefgen/serve/oip"
)

// Proto reads messages of the type ModelInferRequest, and ModelInferResponse, one after the other, and keeps its memory. A message lies in
// segments, as the transport received it; nothing of it is copied but the elements of tensors, once. Fields come in
// any order, as protobuf allows: Scan notes where they are, and Request reads them.
type Proto struct {
	Name    []byte // of the model; valid as long as the segments are
	Version []byte

	rawOut     bool // outputs are to be raw
	id         []byte
	parameters []cursor
	tensors    []cursor // inputs of a request, outputs of an answer
	outputs    []cursor // asked for
	raw        []cursor

	texts  arena
	shape  []int64
	pieces []cursor // of the contents of the tensor that is being read
	name   []byte   // of that tensor
	typ    []byte
}

// Reset lets the segments go.
func (p *Proto) Reset() {
	for _, l := range []*[]cursor{&p.parameters, &p.tensors, &p.outputs, &p.raw, &p.pieces} {
		clear(*l)
		*l = (*l)[:0]
	}
	p.Name, p.Version, p.id, p.name, p.typ = nil, nil, nil, nil, nil
	p.texts.bytes = p.texts.bytes[:0]
}

// Scan begins a request: it finds the fields of the message, and sets Name and Version.
func (p *Proto) Scan(segments [][]byte) error {
	return p.scan(start(segments, "request"), 4, 5, 6, 7)
}

// scan notes the fields of a message whose parameters, tensors, requested outputs (0: it has none) and raw
// contents have those numbers.
func (p *Proto) scan(c cursor, parameters, tensors, outputs, raw int) error {
	p.Reset()
	for c.left > 0 {
		number, wiretype, err := c.field()
		if err != nil {
			return err
		}
		if wiretype != typeBytes {
			if err := c.skip(number, wiretype); err != nil {
				return err
			}
			continue
		}
		switch number {
		case 1:
			p.Name, err = p.texts.text(&c)
		case 2:
			p.Version, err = p.texts.text(&c)
		case 3:
			p.id, err = p.texts.text(&c)
		case parameters:
			err = note(&p.parameters, &c, MaxParameters, "parameters")
		case tensors:
			err = note(&p.tensors, &c, MaxTensors, "tensors")
		case raw:
			err = note(&p.raw, &c, MaxTensors, "tensors of raw bytes")
		case outputs:
			err = note(&p.outputs, &c, MaxTensors, "requested outputs")
		default:
			err = c.skip(number, wiretype)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func note(list *[]cursor, c *cursor, most int, of string) error {
	m, err := c.message()
	if err != nil {
		return err
	}
	if len(*list) == most {
		return oip.Errorf(oip.InvalidArgument, "%s has more than %d %s", c.what, most, of)
	}
	*list = append(*list, m)
	return nil
}

// Request reads what Scan found: into r, and the elements of the inputs into mem.
func (p *Proto) Request(r *Request, mem oip.Call) error {
	if err := r.SetID(p.id); err != nil {
		return err
	}
	raw := len(p.raw) > 0 || len(p.tensors) == 0
	var uneven error // said once it is known that no input has contents, which is the likelier mistake
	if raw && len(p.raw) != len(p.tensors) {
		uneven = oip.Errorf(oip.InvalidArgument, "request for model '%s' has %d inputs and %d raw_input_contents, expected as many", r.spec.Name, len(p.tensors), len(p.raw))
		if len(p.tensors) == 0 {
			return uneven
		}
	}
	// Clients that write contents read raw outputs: those of Triton do, whose server answers in no other way.
	p.rawOut = true
	for i := range p.parameters {
		if err := p.requestParameter(r, p.parameters[i]); err != nil {
			return err
		}
	}
	for i := range p.tensors {
		if err := p.tensor(p.tensors[i], r); err != nil {
			return err
		}
		index, size, err := r.Input(p.name, p.typ, p.shape)
		if err != nil {
			return err
		}
		t := tensorOf{"input", r.spec.Name, &r.spec.Inputs[index]}
		if raw && len(p.pieces) > 0 {
			return oip.Errorf(oip.InvalidArgument, "contents field must not be specified when using raw_input_contents for '%s' for model '%s'", t.Name, t.model)
		}
		if uneven != nil {
			return uneven
		}
		if err := p.check(t, i, raw, size); err != nil {
			return err
		}
		dst, err := mem.Input(index, p.shape)
		if err != nil {
			return err
		}
		if err := p.fill(t, i, raw, dst); err != nil {
			return err
		}
	}
	for i := range p.outputs {
		if err := p.output(p.outputs[i], r); err != nil {
			return err
		}
	}
	r.Binary = p.rawOut
	return r.Done()
}

// check says whether tensor i comes in one form, and, if it is raw, with as many bytes as its shape says.
func (p *Proto) check(t tensorOf, i int, raw bool, size int) error {
	if !raw {
		return nil
	}
	if len(p.pieces) > 0 {
		return t.wrong("has contents, which must not be given beside raw bytes")
	}
	if n := p.raw[i].left; n != size {
		return t.wrong("has %d raw bytes, expected %d for %s of %s", n, size, sizes(p.shape), t.Type)
	}
	return nil
}

// fill copies the elements of tensor i to dst.
func (p *Proto) fill(t tensorOf, i int, raw bool, dst []byte) error {
	if !raw {
		return contents(p.pieces, t, dst)
	}
	p.raw[i].copy(dst)
	return checkBools(t, dst)
}

// tensor reads all of a tensor but its elements: name, type, shape, and where contents are. r counts its parameters; it is
// nil for tensors of answers.
func (p *Proto) tensor(c cursor, r *Request) error {
	clear(p.pieces)
	p.name, p.typ, p.shape, p.pieces = nil, nil, p.shape[:0], p.pieces[:0]
	for c.left > 0 {
		number, wiretype, err := c.field()
		if err != nil {
			return err
		}
		switch {
		case number == 1 && wiretype == typeBytes:
			p.name, err = p.texts.text(&c)
		case number == 2 && wiretype == typeBytes:
			p.typ, err = p.texts.text(&c)
		case number == 3 && (wiretype == typeBytes || wiretype == typeVarint):
			p.shape, err = c.numbers(p.shape, wiretype, maxAxes)
		case number == 4 && wiretype == typeBytes && r != nil:
			err = p.parameter(&c, r, func(key []byte, _ choice) error { return r.Refuse(key) })
		case number == 5 && wiretype == typeBytes:
			err = note(&p.pieces, &c, maxPieces, "pieces of contents of one tensor")
		default:
			err = c.skip(number, wiretype)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// output reads an output that is asked for.
func (p *Proto) output(c cursor, r *Request) error {
	var name []byte
	classes := 0
	for c.left > 0 {
		number, wiretype, err := c.field()
		if err != nil {
			return err
		}
		switch {
		case number == 1 && wiretype == typeBytes:
			name, err = p.texts.text(&c)
		case number == 2 && wiretype == typeBytes:
			err = p.parameter(&c, r, func(key []byte, v choice) error {
				switch string(key) {
				case "classification":
					n, err := v.integer(key, math.MaxInt32)
					classes = int(n)
					return err
				case "binary_data":
					b, err := v.bool(key)
					p.rawOut = b
					return err
				}
				return r.Refuse(key)
			})
		default:
			err = c.skip(number, wiretype)
		}
		if err != nil {
			return err
		}
	}
	i, err := r.Output(name)
	if err == nil {
		r.Wanted[i].Classes = classes
	}
	return err
}

func (p *Proto) requestParameter(r *Request, c cursor) error {
	return p.entry(c, r, func(key []byte, v choice) error {
		switch string(key) {
		case "timeout":
			us, err := v.integer(key, math.MaxInt64/uint64(time.Microsecond))
			r.Timeout = time.Duration(us) * time.Microsecond
			return err
		case "priority":
			n, err := v.integer(key, math.MaxInt64)
			r.Priority = n
			return err
		case "binary_data_output":
			b, err := v.bool(key)
			p.rawOut = b
			return err
		case agree.Parameter:
			s, err := v.string(key)
			if err != nil {
				return err
			}
			return r.SetContract(s)
		}
		return r.Refuse(key)
	})
}

// parameter reads the next field, an entry of a map of parameters.
func (p *Proto) parameter(c *cursor, r *Request, use func(key []byte, v choice) error) error {
	m, err := c.message()
	if err != nil {
		return err
	}
	return p.entry(m, r, use)
}

func (p *Proto) entry(c cursor, r *Request, use func(key []byte, v choice) error) error {
	if err := r.Parameter(); err != nil {
		return err
	}
	var key []byte
	var v choice
	for c.left > 0 {
		number, wiretype, err := c.field()
		if err != nil {
			return err
		}
		switch {
		case number == 1 && wiretype == typeBytes:
			key, err = p.texts.text(&c)
		case number == 2 && wiretype == typeBytes:
			var m cursor
			if m, err = c.message(); err == nil {
				err = p.choose(m, &v)
			}
		default:
			err = c.skip(number, wiretype)
		}
		if err != nil {
			return err
		}
	}
	return use(key, v)
}

// choice is an InferParameter.
type choice struct {
	field int // 0: none, 1: bool, 2: int64, 3: string, 4: double, 5: uint64
	n     uint64
	text  []byte
}

var choices = [...]string{"nothing", "bool_param", "int64_param", "string_param", "double_param", "uint64_param"}

// choose reads a value. The last field counts, as protobuf wants.
func (p *Proto) choose(c cursor, v *choice) error {
	for c.left > 0 {
		number, wiretype, err := c.field()
		if err != nil {
			return err
		}
		switch {
		case (number == 1 || number == 2 || number == 5) && wiretype == typeVarint:
			v.field = number
			v.n, err = c.varint()
		case number == 3 && wiretype == typeBytes:
			v.field = number
			v.text, err = p.texts.text(&c)
		case number == 4 && wiretype == typeFixed8:
			v.field = number
			v.n, err = c.fixed(8)
		default:
			err = c.skip(number, wiretype)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (v choice) wrong(key []byte, want string) error {
	return oip.Errorf(oip.InvalidArgument, "parameter '%s' has %s, expected %s", clip(key), choices[v.field], want)
}

// integer returns an integer of at least 0, which may be written as a string.
func (v choice) integer(key []byte, most uint64) (uint64, error) {
	n := v.n
	switch v.field {
	case 2, 5:
	case 3:
		n = 0
		for _, d := range v.text {
			if d < '0' || d > '9' || n > most {
				return 0, v.wrong(key, "an integer")
			}
			n = n*10 + uint64(d-'0')
		}
		if len(v.text) == 0 {
			return 0, v.wrong(key, "an integer")
		}
	default:
		return 0, v.wrong(key, "int64_param")
	}
	if n > most {
		return 0, oip.Errorf(oip.InvalidArgument, "parameter '%s' is %d, expected 0 to %d", clip(key), int64(n), most)
	}
	return n, nil
}

func (v choice) bool(key []byte) (bool, error) {
	if v.field != 1 {
		return false, v.wrong(key, "bool_param")
	}
	return v.n != 0, nil
}

func (v choice) string(key []byte) ([]byte, error) {
	if v.field != 3 {
		return nil, v.wrong(key, "string_param")
	}
	return v.text, nil
}
