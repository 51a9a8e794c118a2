package train

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// The opaque blobs of a training model.
const (
	// AboutBlob has [About], as JSON.
	AboutBlob = contract.TrainingBlob
	// ModelBlob has the ONNX model without the data of its weights, which the file has already: the length of
	// a JSON header in 8 bytes, little-endian, that header, which says where the weights belong, and the bytes of the model around them.
	ModelBlob = "popefgen.onnx"
)

// ErrBlobs marks an [AboutBlob] or a [ModelBlob] that is missing or can't be read.
var ErrBlobs = errors.New("the file does not say of which ONNX model it was made")

// maxAbout bounds the JSON of both blobs.
const maxAbout = 64 << 20

// About says what a training model learns.
type About struct {
	Version   int      `json:"version"`
	Loss      string   `json:"loss"`             // name of the output that is the loss
	Labels    string   `json:"labels,omitempty"` // name of the input with the labels; empty if there is none
	Optimizer string   `json:"optimizer"`        // as [optim.Parse] reads it
	Divisor   int64    `json:"divisor"`          // by which an update divides the sum of gradients, [optim.Step.Divisor]
	Trained   []string `json:"trained"`          // names of the weights that are trained
	// Constants are names of weights, trained ones and statistics, that are values of Constant nodes of the ONNX model.
	Constants []string `json:"constants,omitempty"`
	// Shapes are those of the ONNX model's inputs, by name, of a model of one size.
	Shapes map[string][]int64 `json:"shapes,omitempty"`
	// Members and Rules are those of [Options], of a family.
	Members []compile.Sizes         `json:"members,omitempty"`
	Rules   map[string]compile.Rule `json:"rules,omitempty"`
}

// ReadAbout returns what a training model says of itself. The error wraps [ErrBlobs].
func ReadAbout(m *popef.Model) (*About, error) {
	data, err := opaque(m, AboutBlob)
	if err != nil {
		return nil, err
	}
	var a About
	if len(data) > maxAbout {
		return nil, fmt.Errorf("%w: opaque blob %q has %d bytes, want at most %d", ErrBlobs, AboutBlob, len(data), maxAbout)
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, fmt.Errorf("%w: opaque blob %q: %w", ErrBlobs, AboutBlob, err)
	}
	if a.Version != 1 {
		return nil, fmt.Errorf("%w: opaque blob %q is of version %d, want 1: update popefgen", ErrBlobs, AboutBlob, a.Version)
	}
	return &a, nil
}

// opaque returns the payload of an opaque blob.
func opaque(m *popef.Model, name string) ([]byte, error) {
	for _, b := range m.Opaques() {
		if b.Name == name {
			data, err := b.Bytes()
			if err != nil {
				return nil, fmt.Errorf("opaque blob %q: %w", name, err)
			}
			return data, nil
		}
	}
	return nil, fmt.Errorf("%w: opaque blob %q is missing: popefgen compile --train makes models that have it", ErrBlobs, name)
}

// cut is a piece of the ONNX model that the file has as data of an anchor.
type cut struct {
	At     int64  `json:"at"` // in the whole model
	Bytes  int64  `json:"bytes"`
	Anchor string `json:"anchor"`
}

// modelHeader is the header of a [ModelBlob].
type modelHeader struct {
	Version int   `json:"version"`
	Size    int64 `json:"size"` // of the whole model
	Cuts    []cut `json:"cuts"` // in the order of the model
}

// blobs appends what the file says of its origin.
func (t *trainer) blobs() error {
	source, err := json.Marshal(t.result.Source)
	if err != nil {
		return err
	}
	about := About{Version: 1, Loss: t.lossName, Labels: t.labelName, Optimizer: optim.Text(t.Optimizer), Divisor: t.divisor(), Trained: t.result.Trained, Members: t.Members, Rules: t.Rules}
	for _, w := range t.low.Weights {
		if t.constants[w.Initializer] {
			about.Constants = append(about.Constants, w.Name)
		}
	}
	if t.Members == nil {
		about.Shapes = map[string][]int64{}
		for _, p := range t.low.Inputs {
			about.Shapes[p.Name] = t.exe.Tensors[p.Tensor].Type.Shape
		}
	}
	text, err := json.Marshal(about)
	if err != nil {
		return err
	}
	model, err := t.withoutWeights()
	if err != nil {
		return err
	}
	t.result.Blobs = append(t.result.Blobs, export.Blob{Name: compile.SourceBlob, Data: source},
		export.Blob{Name: AboutBlob, Data: text}, export.Blob{Name: ModelBlob, Data: model})
	return nil
}

// withoutWeights returns the payload of the [ModelBlob].
func (t *trainer) withoutWeights() (blob []byte, err error) {
	file := t.File
	if file == nil {
		if file, err = onnx.Encode(t.model); err != nil {
			return nil, err
		}
	}
	anchors := map[string]string{} // of weights, by name in the model
	values := map[string]*onnx.Tensor{}
	count := map[string]int{}
	everyValue(t.model, func(name string, value *onnx.Tensor, _ bool) {
		count[name]++
		values[name] = value
	})
	for _, w := range t.low.Weights {
		if count[w.Initializer] == 1 && len(w.Data) > 0 {
			anchors[w.Initializer] = w.Name
		}
	}
	size := func(name string) int64 { return int64(len(values[name].Data)) }
	file, err = rewritten(spot{}, file, func(name string, tensor []byte) ([]byte, error) {
		if count[name] != 1 {
			return nil, nil
		}
		elsewhere := false
		err := eachField(tensor, func(num protowire.Number, _ protowire.Type, _, _, _ int) error {
			elsewhere = elsewhere || num == tensorExternal
			return nil
		})
		if _, ok := placeOf(tensor, size(name)); ok || err != nil || anchors[name] == "" && !elsewhere {
			return nil, err
		}
		return values[name].Data, nil
	})
	if err != nil {
		return nil, err
	}
	h := modelHeader{Version: 1, Size: int64(len(file))}
	err = visitTensors(spot{}, file, 0, func(name string, tensor []byte, offset int64) error {
		if anchor := anchors[name]; anchor != "" {
			if p, ok := placeOf(tensor, size(name)); ok {
				h.Cuts = append(h.Cuts, cut{offset + p.at, p.bytes, anchor})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(h.Cuts) != len(anchors) || h.Size > math.MaxInt32 {
		return nil, refuse("the model has %d bytes with its external data and %d of %d weights in one piece, want at most %d bytes and all weights: learnt weights could not be put back", h.Size, len(h.Cuts), len(anchors), math.MaxInt32)
	}
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	blob = append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	at := int64(0)
	for _, c := range h.Cuts {
		blob = append(blob, file[at:c.At]...)
		at = c.At + c.Bytes
	}
	return append(blob, file[at:]...), nil
}

// Extract returns the ONNX model of which a training model was compiled, with other weights: byte for byte the file that it was compiled
// from, but for the data of weights (data that were in files of their own, or in numbers of variable length, stand in raw_data). learnt has them by
// the names of anchors, row-major and little-endian; those that it does not have, or all if it is nil, are the training model's
// own. The error wraps [ErrBlobs] where m says nothing of an ONNX model, or what it says can't be.
func Extract(m *popef.Model, learnt map[string][]byte) ([]byte, error) {
	blob, err := opaque(m, ModelBlob)
	if err != nil {
		return nil, err
	}
	h, rest, err := readHeader(blob)
	if err != nil {
		return nil, fmt.Errorf("opaque blob %q: %w", ModelBlob, err)
	}
	weights := make([][]byte, len(h.Cuts))
	for i, c := range h.Cuts {
		data, ok := learnt[c.Anchor]
		if !ok {
			if data, err = ownData(m, c.Anchor, c.Bytes); err != nil {
				return nil, err
			}
		}
		if int64(len(data)) != c.Bytes {
			return nil, fmt.Errorf("weight %q: found %d bytes, want the %d of the model's: it is of another model, or of another type", c.Anchor, len(data), c.Bytes)
		}
		weights[i] = data
	}
	out := make([]byte, 0, h.Size) // as much as there is
	for i, c := range h.Cuts {
		n := c.At - int64(len(out))
		out = append(append(out, rest[:n]...), weights[i]...)
		rest = rest[n:]
	}
	return append(out, rest...), nil
}

// ownData returns the data that the file has for an anchor.
func ownData(m *popef.Model, anchor string, bytes int64) ([]byte, error) {
	b, ok := m.Data(anchor)
	if !ok {
		return nil, fmt.Errorf("%w: the file has no data of weight %q", ErrBlobs, anchor)
	}
	if b.PayloadSize != bytes {
		return nil, fmt.Errorf("%w: weight %q has %d bytes, want the %d of the model's", ErrBlobs, anchor, b.PayloadSize, bytes)
	}
	return m.ReadTensor(anchor)
}

// readHeader returns the header of a [ModelBlob] and the bytes behind it, once all that it claims fits.
func readHeader(blob []byte) (h modelHeader, rest []byte, err error) {
	refuse := func(format string, args ...any) (modelHeader, []byte, error) {
		return modelHeader{}, nil, fmt.Errorf("%w: %s; compile the model again", ErrBlobs, fmt.Sprintf(format, args...))
	}
	if len(blob) < 8 {
		return refuse("it has %d bytes, want a header", len(blob))
	}
	n := binary.LittleEndian.Uint64(blob)
	if n > min(uint64(len(blob)-8), maxAbout) {
		return refuse("its header is to have %d bytes, and it has %d", n, len(blob)-8)
	}
	if err := json.Unmarshal(blob[8:8+n], &h); err != nil {
		return refuse("its header is not read: %v", err)
	}
	if h.Version != 1 {
		return refuse("it is of version %d, want 1", h.Version)
	}
	rest = blob[8+n:]
	at, sum := int64(0), int64(0)
	for _, c := range h.Cuts {
		if c.Bytes < 0 || c.At < at || c.At > math.MaxInt32 || c.Bytes > math.MaxInt32-c.At || c.At-sum > int64(len(rest)) {
			return refuse("the weight %q is to be at offset %d with %d bytes, which does not fit", c.Anchor, c.At, c.Bytes)
		}
		at, sum = c.At+c.Bytes, sum+c.Bytes
	}
	if h.Size != int64(len(rest))+sum || at > h.Size {
		return refuse("the model is to have %d bytes, and is made of %d and %d", h.Size, len(rest), sum)
	}
	return h, rest, nil
}
