package wire

import (
	"github.com/popefgen/popefgen/serve/internal/agree"
	"github.com/popefgen/popefgen/serve/oip"
)

// ProtoWriter writes messages of the types ModelInferResponse and ModelInferRequest, one after the other, and keeps its
// memory. The raw bytes of tensors are not copied: a message is what stands in Head up to each of Cuts, followed by
// the raw bytes of that cut, and the rest of Head.
type ProtoWriter struct {
	Head []byte
	Cuts []Cut
	Size int // bytes of the whole message

	classes []byte
	order   []int
	shape   []int64
}

// Cut says which raw bytes come after Head[:At].
type Cut struct {
	At  int
	Raw []byte
}

// Reset lets go of what the message refers to.
func (w *ProtoWriter) Reset() {
	clear(w.Cuts)
	w.Head, w.Cuts, w.Size, w.classes = w.Head[:0], w.Cuts[:0], 0, w.classes[:0]
}

// AppendTo appends the whole message, with a copy of the raw bytes.
func (w *ProtoWriter) AppendTo(b []byte) []byte {
	at := 0
	for _, c := range w.Cuts {
		b = append(append(b, w.Head[at:c.At]...), c.Raw...)
		at = c.At
	}
	return append(b, w.Head[at:]...)
}

// Answer writes the answer of a model's version to r from mem: raw if all outputs are asked for so, or one has a type
// that travels in no other way; otherwise as contents.
func (w *ProtoWriter) Answer(version string, r *Request, mem oip.Call) {
	w.Reset()
	b := appendText(w.Head, 1, r.spec.Name)
	b = appendText(b, 2, version)
	b = appendText(b, 3, r.ID)
	raw := r.Binary
	for i := range r.Wanted {
		o := &r.Wanted[i]
		if field, _ := contentsField(r.spec.Outputs[o.Index].Type); field == 0 && o.Classes == 0 {
			raw = true
		}
	}
	w.Head = b
	for i := range r.Wanted {
		o := &r.Wanted[i]
		t := &r.spec.Outputs[o.Index]
		data, shape := mem.Output(o.Index)
		if o.Classes > 0 {
			w.classify(r.spec, t, o.Classes, data, shape, raw)
			continue
		}
		w.tensor(5, t.Name, t.Type, shape, data, raw)
	}
	w.finish(6)
}

// Request writes a client's request with raw inputs.
func (w *ProtoWriter) Request(spec *oip.Spec, hash string, x oip.Exchange) {
	w.Reset()
	w.Head = appendText(w.Head, 1, spec.Name)
	if hash != "" {
		value := sizeText(len(hash))
		b := appendVarint(appendTag(w.Head, 4, typeBytes), uint64(sizeText(len(agree.Parameter))+sizeText(value)))
		b = appendText(b, 1, agree.Parameter)
		b = appendVarint(appendTag(b, 2, typeBytes), uint64(value))
		w.Head = appendText(b, 3, hash)
	}
	for i := range spec.Inputs {
		data, shape := x.Given(i)
		w.tensor(5, spec.Inputs[i].Name, spec.Inputs[i].Type, shape, data, true)
	}
	for i := range spec.Outputs { // by name: a server may have more of them
		name := spec.Outputs[i].Name
		w.Head = appendText(appendVarint(appendTag(w.Head, 6, typeBytes), uint64(sizeText(len(name)))), 1, name)
	}
	w.finish(7)
}

// tensor writes a tensor, and notes its raw bytes if it is to be so.
func (w *ProtoWriter) tensor(field int, name string, t oip.DataType, shape []int64, data []byte, raw bool) {
	axes := 0
	for _, d := range shape {
		axes += sizeVarint(uint64(d))
	}
	n := sizeText(len(name)) + sizeText(len(t.String())) + sizeText(axes)
	inner := 0
	if raw {
		w.Cuts = append(w.Cuts, Cut{Raw: data})
	} else {
		inner = sizeContents(t, data)
		n += 1 + sizeVarint(uint64(inner)) + inner
	}
	b := appendVarint(appendTag(w.Head, field, typeBytes), uint64(n))
	b = appendHead(b, name, t, shape, axes)
	if !raw {
		b = appendContents(appendVarint(appendTag(b, 5, typeBytes), uint64(inner)), t, data)
	}
	w.Head = b
}

func appendHead(b []byte, name string, t oip.DataType, shape []int64, axes int) []byte {
	b = appendText(b, 1, name)
	b = appendText(b, 2, t.String())
	if axes > 0 {
		b = appendVarint(appendTag(b, 3, typeBytes), uint64(axes))
		for _, d := range shape {
			b = appendVarint(b, uint64(d))
		}
	}
	return b
}

// classify writes the classes of an output, as BYTES.
func (w *ProtoWriter) classify(spec *oip.Spec, t *oip.Tensor, k int, data []byte, shape []int64, raw bool) {
	rows := Rows(spec, shape)
	row := 0
	if rows > 0 {
		row = len(data) / rows
	}
	k = min(k, row/t.Type.Size())
	w.shape = w.shape[:0]
	if spec.Samples > 0 {
		w.shape = append(w.shape, int64(rows))
	}
	w.shape = append(w.shape, int64(k))
	from := len(w.classes)
	each := appendBytes
	if !raw {
		each = func(b, text []byte) []byte {
			return append(appendVarint(appendTag(b, 8, typeBytes), uint64(len(text))), text...)
		}
	}
	for i := range rows {
		w.classes, w.order = Classes(w.classes, w.order, t, data[i*row:][:row], k, each)
	}
	part := w.classes[from:len(w.classes):len(w.classes)]
	if raw {
		w.tensor(5, t.Name, oip.Bytes, w.shape, part, true)
		return
	}
	axes := 0
	for _, d := range w.shape {
		axes += sizeVarint(uint64(d))
	}
	n := sizeText(len(t.Name)) + sizeText(len(oip.Bytes.String())) + sizeText(axes) + 1 + sizeVarint(uint64(len(part))) + len(part)
	b := appendVarint(appendTag(w.Head, 5, typeBytes), uint64(n))
	b = appendHead(b, t.Name, oip.Bytes, w.shape, axes)
	w.Head = append(appendVarint(appendTag(b, 5, typeBytes), uint64(len(part))), part...)
}

// finish writes the fields of raw bytes and counts the whole.
func (w *ProtoWriter) finish(field int) {
	for i := range w.Cuts {
		c := &w.Cuts[i]
		w.Head = appendVarint(appendTag(w.Head, field, typeBytes), uint64(len(c.Raw)))
		c.At = len(w.Head)
		w.Size += len(c.Raw)
	}
	w.Size += len(w.Head)
}

// MaxPrefix is how many bytes AppendPrefix appends at most.
const MaxPrefix = 1 + 10

// AppendPrefix appends what stands before an answer of size bytes in a ModelStreamInferResponse.
func AppendPrefix(b []byte, size int) []byte {
	return appendVarint(appendTag(b, 2, typeBytes), uint64(size))
}
