package wire

import (
	"math/bits"

	"github.com/popefgen/popefgen/serve/oip"
)

// outputs is the Sink of answers.
type outputs struct {
	spec  *oip.Spec
	x     oip.Exchange
	given uint64
}

func (s *outputs) Begin(name, datatype []byte, shape []int64) (int, oip.DataType, int, error) {
	i := find(s.spec.Outputs, name)
	if i < 0 {
		return 0, 0, 0, oip.Errorf(oip.Internal, "unexpected output '%s' of model '%s', expected %s", clip(name), s.spec.Name, names(s.spec.Outputs))
	}
	t := &s.spec.Outputs[i]
	if s.given&(1<<i) != 0 {
		return 0, 0, 0, oip.Errorf(oip.Internal, "output '%s' of model '%s' is given twice", t.Name, s.spec.Name)
	}
	s.given |= 1 << i
	if oip.ParseDataType(datatype) != t.Type {
		return 0, 0, 0, oip.Errorf(oip.Internal, "output '%s' of model '%s' has the data type '%s', expected '%s'", t.Name, s.spec.Name, clip(datatype), t.Type)
	}
	n, ok := elements(t, shape)
	if !ok {
		return 0, 0, 0, oip.Errorf(oip.Internal, "output '%s' of model '%s' has the shape %s, expected %s", t.Name, s.spec.Name, sizes(shape), Shape(t))
	}
	return i, t.Type, int(n) * t.Type.Size(), nil
}

func (s *outputs) Memory(index int, shape []int64) ([]byte, error) { return s.x.Take(index, shape) }

// Answer reads the answer to a request for all outputs of spec into the memory that x gives. Its first header bytes are JSON, and the bytes of
// tensors follow; or all is JSON, if header is -1.
func (d *Reader) Answer(spec *oip.Spec, x oip.Exchange, header int64) error {
	d.what, d.nesting = "answer", MaxDepth
	for i := range spec.Outputs {
		d.nesting = max(d.nesting, MaxDepth+len(spec.Outputs[i].Shape))
	}
	if header >= 0 {
		d.split(header)
	}
	d.out = outputs{spec: spec, x: x}
	defer func() { d.out = outputs{} }()
	if err := d.answer(&d.out); err != nil {
		return err
	}
	if err := d.tensors(&d.out, header >= 0); err != nil {
		return err
	}
	for i := range spec.Outputs {
		if d.out.given&(1<<i) == 0 {
			return oip.Errorf(oip.Internal, "expected %d outputs but got %d of model '%s'. Output '%s' is missing", len(spec.Outputs), bits.OnesCount64(d.out.given), spec.Name, spec.Outputs[i].Name)
		}
	}
	return nil
}

func (d *Reader) answer(s Sink) error {
	if err := d.open('{'); err != nil {
		return err
	}
	seen := 0
	for n := 0; ; n++ {
		d.section, d.field = "", ""
		key, end, err := d.key(n)
		if end || err != nil {
			return err
		}
		if string(key) != "outputs" {
			err = d.skip(1) // the name, the version and the id are those of the request; others may be other servers'
		} else if err = d.once(&seen, hasOutputs, "outputs"); err == nil {
			err = d.objects("outputs", func() error { return d.tensor(nil, s) })
		}
		if err != nil {
			return err
		}
	}
}

// Failure reads the answer to a request that failed: {"error": TEXT}, and what else this server says.
func (d *Reader) Failure() (text, code, contract string, err error) {
	d.what, d.nesting = "answer", MaxDepth
	if err := d.open('{'); err != nil {
		return "", "", "", err
	}
	for n := 0; ; n++ {
		key, end, err := d.key(n)
		if end || err != nil {
			return text, code, contract, err
		}
		var to *string
		switch string(key) {
		case "error":
			to = &text
		case "code":
			to = &code
		case "contract":
			to = &contract
		}
		if to == nil {
			err = d.skip(1)
		} else {
			var s []byte
			s, err = d.string()
			*to = string(s)
		}
		if err != nil {
			return "", "", "", err
		}
	}
}
