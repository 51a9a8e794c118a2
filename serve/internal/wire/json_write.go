package wire

import (
	"encoding/binary"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/serve/internal/agree"
	"github.com/popefgen/popefgen/serve/oip"
)

// Writer makes the body of an answer or a request: text, which may be all, and then the bytes of tensors. It keeps its memory from one to
// the next.
type Writer struct {
	Text  []byte   // JSON
	Parts [][]byte // what follows it, in order: memory of the call, or of the Writer
	Split bool     // something follows, even if it has no bytes: readers have to know where the text ends

	classes []byte // labels as bytes, one output after the other
	order   []int  // of the classes of one sample
}

// Reset begins another body.
func (w *Writer) Reset() {
	const most = 1 << 20
	if cap(w.Text) > most {
		w.Text = nil
	}
	clear(w.Parts)
	w.Text, w.Parts, w.Split, w.classes = w.Text[:0], w.Parts[:0], false, w.classes[:0]
}

// Size returns how many bytes the body has.
func (w *Writer) Size() int {
	n := len(w.Text)
	for _, p := range w.Parts {
		n += len(p)
	}
	return n
}

// Answer writes the answer to a request that has run.
func (w *Writer) Answer(model, version string, r *Request, mem oip.Call) error {
	w.Reset()
	b := append(w.Text, '{')
	if len(r.ID) > 0 {
		b = append(b, `"id":`...)
		b = append(appendString(b, r.ID), ',')
	}
	b = append(b, `"model_name":`...)
	b = appendString(b, model)
	b = append(b, `,"model_version":`...)
	b = appendString(b, version)
	b = append(b, `,"outputs":[`...)
	for i := range r.Wanted {
		if i > 0 {
			b = append(b, ',')
		}
		o := &r.Wanted[i]
		t := &r.spec.Outputs[o.Index]
		data, shape := mem.Output(o.Index)
		b = append(b, `{"name":`...)
		b = appendString(b, t.Name)
		var err error
		switch {
		case o.Classes > 0:
			b, err = w.classification(b, r.spec, t, o, data, shape)
		case o.Binary:
			b = appendType(b, t.Type.String(), shape)
			b = appendBinary(b, len(data))
			w.Parts, w.Split = append(w.Parts, data), true
		default:
			b = appendType(b, t.Type.String(), shape)
			b = append(b, `,"data":`...)
			b, err = appendData(b, t, data)
		}
		if err != nil {
			return err
		}
		b = append(b, '}')
	}
	w.Text = append(b, "]}"...)
	return nil
}

// Request writes a request for all outputs of spec as bytes, of a client with a contract of that hash, "" if it does not say; with the time
// that it has, if that is above 0.
func (w *Writer) Request(spec *oip.Spec, contract string, timeout time.Duration, x oip.Exchange) {
	w.Reset()
	b := append(w.Text, '{')
	if contract != "" || timeout > 0 {
		b = append(b, `"parameters":{`...)
		if contract != "" {
			b = append(appendString(b, agree.Parameter), ':')
			b = appendString(b, contract)
		}
		if timeout > 0 {
			if contract != "" {
				b = append(b, ',')
			}
			b = strconv.AppendInt(append(b, `"timeout":`...), max(1, timeout.Microseconds()), 10)
		}
		b = append(b, "},"...)
	}
	b = append(b, `"inputs":[`...)
	for i := range spec.Inputs {
		if i > 0 {
			b = append(b, ',')
		}
		t := &spec.Inputs[i]
		data, shape := x.Given(i)
		b = append(b, `{"name":`...)
		b = appendString(b, t.Name)
		b = appendType(b, t.Type.String(), shape)
		b = append(appendBinary(b, len(data)), '}')
		w.Parts = append(w.Parts, data)
	}
	b = append(b, `],"outputs":[`...)
	for i := range spec.Outputs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"name":`...)
		b = append(appendString(b, spec.Outputs[i].Name), `,"parameters":{"binary_data":true}}`...)
	}
	w.Text, w.Split = append(b, "]}"...), true
}

func appendType(b []byte, datatype string, shape []int64) []byte {
	b = append(b, `,"datatype":"`...)
	b = append(b, datatype...)
	b = append(b, `","shape":[`...)
	for i, n := range shape {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return append(b, ']')
}

func appendBinary(b []byte, size int) []byte {
	b = append(b, `,"parameters":{"binary_data_size":`...)
	return append(strconv.AppendInt(b, int64(size), 10), '}')
}

// appendString writes a string of JSON. Bytes that are no UTF-8 become U+FFFD.
func appendString[S string | []byte](b []byte, s S) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
			b = utf8.AppendRune(b, r)
			i += n
			continue
		}
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c == 0x7f || c == '<' || c == '>' || c == '&': // browsers that take JSON for HTML find no tag in it
			const hex = "0123456789abcdef"
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
		i++
	}
	return append(b, '"')
}

// appendData writes the elements of a tensor, in row-major order.
func appendData(b []byte, t *oip.Tensor, data []byte) ([]byte, error) {
	b = append(b, '[')
	size := t.Type.Size()
	if t.Type == oip.BF16 {
		return b, oip.Errorf(oip.InvalidArgument, "output '%s' has the type BF16, which JSON does not carry; ask for it with binary_data", t.Name)
	}
	for i := 0; i < len(data); i += size {
		if i > 0 {
			b = append(b, ',')
		}
		p := data[i : i+size]
		finite := true
		switch t.Type {
		case oip.FP32:
			b, finite = appendFloat32(b, math.Float32frombits(binary.LittleEndian.Uint32(p)))
		case oip.FP16:
			b, finite = appendFloat32(b, num.Float16(binary.LittleEndian.Uint16(p)).Float32())
		case oip.FP64:
			f := math.Float64frombits(binary.LittleEndian.Uint64(p))
			if finite = f-f == 0; finite {
				b = appendFloat(b, f, 64)
			}
		case oip.Bool:
			b = strconv.AppendBool(b, p[0] != 0)
		case oip.Uint8:
			b = strconv.AppendUint(b, uint64(p[0]), 10)
		case oip.Uint16:
			b = strconv.AppendUint(b, uint64(binary.LittleEndian.Uint16(p)), 10)
		case oip.Uint32:
			b = strconv.AppendUint(b, uint64(binary.LittleEndian.Uint32(p)), 10)
		case oip.Uint64:
			b = strconv.AppendUint(b, binary.LittleEndian.Uint64(p), 10)
		case oip.Int8:
			b = strconv.AppendInt(b, int64(int8(p[0])), 10)
		case oip.Int16:
			b = strconv.AppendInt(b, int64(int16(binary.LittleEndian.Uint16(p))), 10)
		case oip.Int32:
			b = strconv.AppendInt(b, int64(int32(binary.LittleEndian.Uint32(p))), 10)
		case oip.Int64:
			b = strconv.AppendInt(b, int64(binary.LittleEndian.Uint64(p)), 10)
		}
		if !finite {
			return b, oip.Errorf(oip.InvalidArgument, "element %d of output '%s' is not finite, and JSON has no text for that; ask for the output with binary_data", i/size, t.Name)
		}
	}
	return append(b, ']'), nil
}
