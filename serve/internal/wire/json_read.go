package wire

import (
	"math"
	"slices"
	"time"

	"github.com/popefgen/popefgen/serve/internal/agree"
	"github.com/popefgen/popefgen/serve/oip"
)

// Sink is where a Reader puts the tensors that it finds.
type Sink interface {
	// Begin checks a tensor and returns its index, its type and how many bytes its elements take.
	Begin(name, datatype []byte, shape []int64) (index int, t oip.DataType, size int, err error)
	// Memory returns where the elements of a tensor that was checked go.
	Memory(index int, shape []int64) ([]byte, error)
}

// inputs is the Sink of requests.
type inputs struct {
	r   *Request
	mem oip.Call
}

func (s *inputs) Begin(name, datatype []byte, shape []int64) (int, oip.DataType, int, error) {
	i, n, err := s.r.Input(name, datatype, shape)
	if err != nil {
		return 0, 0, 0, err
	}
	return i, s.r.spec.Inputs[i].Type, n, nil
}

func (s *inputs) Memory(index int, shape []int64) ([]byte, error) { return s.mem.Input(index, shape) }

// Bits of the fields of objects that were read, so that none comes twice.
const (
	hasName = 1 << iota
	hasType
	hasShape
	hasData
	hasID
	hasParameters
	hasInputs
	hasOutputs
	hasModel
	hasVersion
	hasSize
	known = hasName | hasType | hasShape
)

func (d *Reader) once(seen *int, bit int, key string) error {
	d.field = key
	if *seen&bit != 0 {
		return d.wrong("\"%s\" is given twice", key)
	}
	*seen |= bit
	return nil
}

// unknown returns the error about a key that nothing has.
func (d *Reader) unknown(key []byte, expected string) error {
	d.field = ""
	return d.wrong("unknown key %q, expected %s", clip(key), expected)
}

// Request reads a request that was Reset for its model, its inputs into mem. Its first header bytes are JSON, and the bytes of tensors follow;
// or all is JSON, if header is -1.
func (d *Reader) Request(r *Request, mem oip.Call, header int64) error {
	d.what, d.nesting = "request", MaxDepth
	for i := range r.spec.Inputs {
		d.nesting = max(d.nesting, MaxDepth+len(r.spec.Inputs[i].Shape))
	}
	if header >= 0 {
		d.split(header)
	}
	d.in = inputs{r, mem}
	err := d.request(r, &d.in)
	if err == nil {
		err = d.tensors(&d.in, header >= 0)
	}
	d.in = inputs{}
	if err != nil {
		return err
	}
	return r.Done()
}

func (d *Reader) request(r *Request, s Sink) error {
	if err := d.open('{'); err != nil {
		return err
	}
	seen := 0
	for n := 0; ; n++ {
		d.section, d.field = "", ""
		key, end, err := d.key(n)
		if err != nil {
			return err
		}
		if end {
			break
		}
		switch string(key) {
		case "id":
			err = d.id(&seen, r)
		case "parameters":
			if err = d.once(&seen, hasParameters, "parameters"); err == nil && !d.null() {
				err = d.requestParameters(r)
			}
		case "inputs":
			if err = d.once(&seen, hasInputs, "inputs"); err == nil {
				err = d.objects("inputs", func() error { return d.tensor(r, s) })
			}
		case "outputs":
			if err = d.once(&seen, hasOutputs, "outputs"); err == nil && !d.null() {
				err = d.objects("outputs", func() error { return d.output(r) })
			}
		default:
			err = d.unknown(key, `"id", "parameters", "inputs" or "outputs"`)
		}
		if err != nil {
			return err
		}
	}
	for i := range r.Wanted { // an output that does not say does as the request, which may say so later
		if w := &r.Wanted[i]; w.unsaid {
			w.Binary, w.unsaid = r.Binary, false
		}
	}
	if seen&hasInputs == 0 {
		return d.wrong(`there is no "inputs"`)
	}
	return nil
}

func (d *Reader) id(seen *int, r *Request) error {
	if err := d.once(seen, hasID, "id"); err != nil || d.null() {
		return err
	}
	id, err := d.string()
	if err != nil {
		return err
	}
	return r.SetID(id)
}

// objects reads a list of objects.
func (d *Reader) objects(section string, each func() error) error {
	if err := d.open('['); err != nil {
		return err
	}
	for n := 0; ; n++ {
		d.section, d.field, d.item = "", section, n
		if end, err := d.list(n, ']'); end || err != nil {
			return err
		}
		if n == MaxTensors {
			return d.wrong("there are more than %d %s", MaxTensors, section)
		}
		d.section, d.field = section, ""
		if err := each(); err != nil {
			return err
		}
	}
}

// tensor reads an input, or an output of an answer.
func (d *Reader) tensor(r *Request, s Sink) error {
	if err := d.open('{'); err != nil {
		return err
	}
	var seen, index, size int
	var t oip.DataType
	binarySize := int64(0)
	late := int64(-1) // where data that came too early began
	begun := false
	begin := func() (err error) {
		begun = true
		index, t, size, err = s.Begin(d.name, d.typ, d.shape)
		return err
	}
	for n := 0; ; n++ {
		d.field = ""
		key, end, err := d.key(n)
		if err != nil {
			return err
		}
		if end {
			break
		}
		switch string(key) {
		case "name":
			err = d.keptString(&seen, hasName, "name", &d.name)
		case "datatype":
			err = d.keptString(&seen, hasType, "datatype", &d.typ)
		case "shape":
			if err = d.once(&seen, hasShape, "shape"); err == nil {
				err = d.sizes()
			}
		case "parameters":
			if err = d.once(&seen, hasParameters, "parameters"); err == nil && !d.null() {
				binarySize, err = d.tensorParameters(r, &seen)
			}
		case "data":
			if err = d.once(&seen, hasData, "data"); err != nil {
				break
			}
			if seen&known != known {
				late, err = d.keep()
				break
			}
			if err = begin(); err == nil {
				err = d.into(s, index, t, size)
			}
		default:
			err = d.unknown(key, `"name", "datatype", "shape", "parameters" or "data"`)
		}
		if err != nil {
			return err
		}
	}
	d.field = ""
	switch {
	case seen&known != known:
		return d.wrong(`it needs "name", "datatype" and "shape"`)
	case seen&hasSize != 0 && seen&hasData != 0:
		return d.wrong("tensor '%s' has data and binary_data_size, expected one of them", clip(d.name))
	case seen&(hasSize|hasData) == 0:
		return d.wrong("tensor '%s' has neither data nor binary_data_size", clip(d.name))
	}
	if !begun {
		if err := begin(); err != nil {
			return err
		}
	}
	if seen&hasSize != 0 {
		if binarySize != int64(size) {
			return d.wrong("tensor '%s' has binary_data_size %d, but data type and shape need %d", clip(d.name), binarySize, size)
		}
		from := len(d.shapes)
		d.shapes = append(d.shapes, d.shape...)
		d.pending = append(d.pending, pending{index, size, from, len(d.shapes), t == oip.Bool})
		return nil
	}
	if late < 0 {
		return nil
	}
	return d.again(late, func() error { return d.into(s, index, t, size) })
}

// into reads data of a tensor into its memory.
func (d *Reader) into(s Sink, index int, t oip.DataType, size int) error {
	d.field = "data"
	dst, err := s.Memory(index, d.shape)
	if err != nil {
		return err
	}
	return d.data(t, dst[:size], d.shape)
}

// keep copies data that came before what says how to read it.
func (d *Reader) keep() (int64, error) {
	d.next()
	d.late, d.mark = d.late[:0], d.pos
	at := d.base + int64(d.pos)
	err := d.skip(1)
	d.late = append(d.late, d.buf[d.mark:d.pos]...)
	d.mark = -1
	return at, err
}

// again reads what keep has kept, which began at byte at of the body.
func (d *Reader) again(at int64, read func() error) error {
	was := *d
	d.late = append(d.late, 0)
	d.buf, d.pos, d.end, d.have = d.late, 0, len(d.late)-1, len(d.late)-1
	d.base, d.done, d.err = at, true, nil
	err := read()
	d.buf, d.pos, d.end, d.have = was.buf, was.pos, was.end, was.have
	d.base, d.done, d.err = was.base, was.done, was.err
	return err
}

// keptString reads a string that has to be there once, and keeps it.
func (d *Reader) keptString(seen *int, bit int, key string, dst *[]byte) error {
	if err := d.once(seen, bit, key); err != nil {
		return err
	}
	s, err := d.string()
	*dst = append((*dst)[:0], s...)
	return err
}

// sizes reads a shape.
func (d *Reader) sizes() error {
	d.shape = d.shape[:0]
	if err := d.open('['); err != nil {
		return err
	}
	for n := 0; ; n++ {
		if end, err := d.list(n, ']'); end || err != nil {
			return err
		}
		if n == maxRank {
			return d.wrong("a shape has more than %d sizes", maxRank)
		}
		v, err := d.int(math.MinInt64, math.MaxInt64)
		if err != nil {
			return err
		}
		d.shape = append(d.shape, v)
	}
}

// output reads an output that is asked for.
func (d *Reader) output(r *Request) error {
	if err := d.open('{'); err != nil {
		return err
	}
	seen := 0
	w := Wanted{unsaid: true}
	for n := 0; ; n++ {
		d.field = ""
		key, end, err := d.key(n)
		if err != nil {
			return err
		}
		if end {
			break
		}
		switch string(key) {
		case "name":
			err = d.keptString(&seen, hasName, "name", &d.name)
		case "parameters":
			if err = d.once(&seen, hasParameters, "parameters"); err == nil && !d.null() {
				err = d.outputParameters(r, &w)
			}
		default:
			err = d.unknown(key, `"name" or "parameters"`)
		}
		if err != nil {
			return err
		}
	}
	d.field = ""
	if seen&hasName == 0 {
		return d.wrong(`it needs "name"`)
	}
	i, err := r.Output(d.name)
	if err != nil {
		return err
	}
	w.Index = r.Wanted[i].Index
	r.Wanted[i] = w
	return nil
}

// parameters reads an object of parameters; each reads the value of one that is known, or says that it does not know it.
func (d *Reader) parameters(r *Request, each func(key []byte) (known bool, err error)) error {
	if err := d.open('{'); err != nil {
		return err
	}
	for n := 0; ; n++ {
		d.field = "parameters"
		key, end, err := d.key(n)
		if end || err != nil {
			return err
		}
		if r != nil {
			if err = r.Parameter(); err != nil {
				return err
			}
		}
		ok, err := each(key)
		if !ok && err == nil {
			err = d.skip(1)
		}
		if err != nil {
			return err
		}
	}
}

func (d *Reader) requestParameters(r *Request) error {
	seen := 0
	return d.parameters(r, func(key []byte) (bool, error) {
		switch string(key) {
		case "timeout":
			if err := d.once(&seen, hasName, "parameters.timeout"); err != nil {
				return true, err
			}
			us, err := d.uint(math.MaxInt64 / int64(time.Microsecond))
			r.Timeout = time.Duration(us) * time.Microsecond
			return true, err
		case "priority":
			if err := d.once(&seen, hasType, "parameters.priority"); err != nil {
				return true, err
			}
			p, err := d.uint(math.MaxInt64)
			r.Priority = uint64(p)
			return true, err
		case "binary_data_output":
			err := d.once(&seen, hasData, "parameters.binary_data_output")
			if err == nil {
				r.Binary, err = d.bool()
			}
			return true, err
		case agree.Parameter:
			if err := d.once(&seen, hasID, "parameters."+agree.Parameter); err != nil {
				return true, err
			}
			s, err := d.string()
			if err == nil {
				err = r.SetContract(s)
			}
			return true, err
		}
		return false, r.Refuse(key)
	})
}

// uint reads an integer from 0 to most, which may be written as a string as protobuf's JSON does.
func (d *Reader) uint(most int64) (int64, error) {
	if d.next() != '"' {
		return d.int(0, most)
	}
	s, err := d.string()
	if err != nil {
		return 0, err
	}
	v := int64(0)
	for i, c := range s {
		if c < '0' || c > '9' || i > 0 && s[0] == '0' || v > (most-int64(c-'0'))/10 {
			return 0, d.wrong("%q is no integer from 0 to %d", clip(s), most)
		}
		v = v*10 + int64(c-'0')
	}
	if len(s) == 0 {
		return 0, d.wrong("\"\" is no integer from 0 to %d", most)
	}
	return v, nil
}

func (d *Reader) tensorParameters(r *Request, seen *int) (size int64, err error) {
	err = d.parameters(r, func(key []byte) (bool, error) {
		if string(key) == "binary_data_size" {
			err := d.once(seen, hasSize, "parameters.binary_data_size")
			if err == nil {
				size, err = d.int(0, math.MaxInt64)
			}
			return true, err
		}
		if r == nil {
			return false, nil
		}
		return false, r.Refuse(key)
	})
	return size, err
}

func (d *Reader) outputParameters(r *Request, w *Wanted) error {
	seen := 0
	return d.parameters(r, func(key []byte) (bool, error) {
		switch string(key) {
		case "binary_data":
			err := d.once(&seen, hasData, "parameters.binary_data")
			if err == nil {
				w.unsaid = false
				w.Binary, err = d.bool()
			}
			return true, err
		case "classification":
			err := d.once(&seen, hasSize, "parameters.classification")
			if err == nil {
				var k int64
				k, err = d.int(0, math.MaxInt32)
				w.Classes = int(k)
			}
			return true, err
		}
		return false, r.Refuse(key)
	})
}

// tensors reads the bytes that follow the text, in the order in which it named them, and checks that nothing else follows.
func (d *Reader) tensors(s Sink, binary bool) error {
	d.section, d.field = "", ""
	if d.next() != 0 || d.pos < d.end {
		return d.expected("the end of the JSON")
	}
	if d.err != nil {
		return d.err
	}
	if !binary {
		if len(d.pending) > 0 {
			return oip.Errorf(oip.InvalidArgument, "%s has binary_data_size, but no header Inference-Header-Content-Length says where its JSON ends", d.what)
		}
		return nil
	}
	if got := d.base + int64(d.end); got < d.text {
		return oip.Errorf(oip.InvalidArgument, "%s body ended after %d bytes, but Inference-Header-Content-Length is %d", d.what, got, d.text)
	}
	d.buf[d.end] = d.saved
	d.end = d.have
	for _, p := range d.pending {
		if p.size == 0 {
			if _, err := s.Memory(p.index, d.shapes[p.from:p.to]); err != nil {
				return err
			}
			continue
		}
		if d.pos == d.have { // nothing of it is here yet: take its memory when something is
			d.text, d.done = -1, d.err != nil
			d.more()
		}
		dst, err := s.Memory(p.index, d.shapes[p.from:p.to])
		if err != nil {
			return err
		}
		err = d.fill(dst[:p.size])
		if p.bool && err != nil {
			clear(dst[:p.size]) // half of it is there, of whatever bytes
		} else if p.bool {
			err = bools(dst[:p.size])
		}
		if err != nil {
			return err
		}
	}
	return d.finish()
}

// bools checks bytes of the type BOOL. If one is neither 0 nor 1 all become 0: they may be the memory of a Go program's bools, which no
// other byte may be, also of one that does not look at the error.
func bools(data []byte) error {
	for i, b := range data {
		if b > 1 {
			clear(data)
			return oip.Errorf(oip.InvalidArgument, "element %d of a tensor of the type BOOL is %d, expected 0 or 1", i, b)
		}
	}
	return nil
}

// Raw reads a request whose body is nothing but the bytes of its model's one input, size of them; -1 if the transport does not know.
func (d *Reader) Raw(r *Request, mem oip.Call, size int64) error {
	d.what = "request"
	if len(r.spec.Inputs) != 1 {
		return oip.Errorf(oip.InvalidArgument, "a body without JSON is for models with one input, model '%s' has %d", r.spec.Name, len(r.spec.Inputs))
	}
	t := &r.spec.Inputs[0]
	shape := append(d.shape[:0], t.Shape...)
	d.shape = shape
	if open := slices.Index(shape, -1); open >= 0 {
		shape[open] = 1
		if slices.Contains(shape, -1) {
			return oip.Errorf(oip.InvalidArgument, "a body without JSON has no shape, and input '%s' of model '%s' has more than one open size: %s", t.Name, r.spec.Name, Shape(t))
		}
		if size < 0 {
			return oip.Errorf(oip.InvalidArgument, "a body without JSON gives the size of input '%s' by its length: it needs Content-Length and no Content-Encoding", t.Name)
		}
		row := int64(t.Type.Size())
		for _, n := range shape {
			row *= n
		}
		if row == 0 || size%row != 0 {
			return oip.Errorf(oip.InvalidArgument, "body has %d bytes, expected a multiple of %d for input '%s' of shape %s", size, row, t.Name, Shape(t))
		}
		shape[open] = size / row
	}
	r.Binary = true
	var typ [8]byte
	index, bytes, err := r.Input(append(d.name[:0], t.Name...), append(typ[:0], t.Type.String()...), shape)
	if err != nil {
		return err
	}
	if size >= 0 && size != int64(bytes) {
		return oip.Errorf(oip.InvalidArgument, "body has %d bytes, expected %d for input '%s' of shape %s", size, bytes, t.Name, sizes(shape))
	}
	dst, err := mem.Input(index, shape)
	if err != nil {
		return err
	}
	d.buf[d.end] = d.saved
	if err := d.fill(dst[:bytes]); err != nil {
		return err
	}
	if t.Type == oip.Bool {
		if err := bools(dst[:bytes]); err != nil {
			return err
		}
	}
	if err := d.finish(); err != nil {
		return err
	}
	return r.Done()
}
