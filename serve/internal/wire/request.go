// Package wire reads requests and writes answers of the Open Inference Protocol, in JSON, binary and protobuf,
// straight between the bytes of the transport and the memory of a call, and says what is wrong with
// a request. It knows neither HTTP nor gRPC.
package wire

import (
	"bytes"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"

	"github.com/popefgen/popefgen/serve/internal/agree"
	"github.com/popefgen/popefgen/serve/oip"
)

// Limits of every request.
const (
	MaxID         = 256 // bytes of an id
	MaxParameters = 64  // of a request, its tensors and its outputs together
	MaxTensors    = 64  // inputs or outputs of a model that is served: what one word of bits can mark
)

// Request is what a request says beside its inputs. Reset makes it ready for the next one and keeps its memory.
type Request struct {
	ID       []byte        // "" if the client gave none; the answer repeats it
	Priority uint64        // Triton's parameter "priority": 1 is before all others
	Timeout  time.Duration // Triton's parameter "timeout", 0 if it was not given
	Contract []byte        // hash of the contract that the client was generated for, 64 hexadecimal digits; "" if it does not say
	Wanted   []Wanted      // the outputs asked for, in that order; none: all
	// Binary says whether outputs that do not say themselves come as raw bytes ("binary_data_output").
	Binary bool

	spec   *oip.Spec
	given  uint64 // inputs that were named, by index
	asked  uint64 // outputs that were
	rows   int64  // samples of the inputs so far, -1 before the first
	first  int    // the input that said so
	params int
}

// Wanted is an output that a request asks for.
type Wanted struct {
	Index   int
	Binary  bool // as raw bytes
	Classes int  // as the labels of so many classes with the highest scores, 0: as it is
	unsaid  bool // Binary is as the request says for all
}

// Reset makes r the request that has nothing yet, of a model.
func (r *Request) Reset(spec *oip.Spec) {
	*r = Request{ID: r.ID[:0], Contract: r.Contract[:0], Wanted: r.Wanted[:0], spec: spec, rows: -1}
}

// SetID keeps a copy of the id.
func (r *Request) SetID(id []byte) error {
	if len(id) > MaxID {
		return oip.Errorf(oip.InvalidArgument, "request id has %d bytes, expected at most %d", len(id), MaxID)
	}
	r.ID = append(r.ID[:0], id...)
	return nil
}

// Parameter counts one more parameter. It returns an error if there are too many.
func (r *Request) Parameter() error {
	if r.params++; r.params > MaxParameters {
		return oip.Errorf(oip.InvalidArgument, "request has more than %d parameters", MaxParameters)
	}
	return nil
}

// SetContract keeps a copy of the hash of the contract that the client was generated for.
func (r *Request) SetContract(hash []byte) error {
	if len(hash) != 64 || bytes.ContainsFunc(hash, func(c rune) bool { return !strings.ContainsRune("0123456789abcdef", c) }) {
		return oip.Errorf(oip.InvalidArgument, "parameter '%s' is '%s', expected 64 hexadecimal digits in lower case", agree.Parameter, clip(hash))
	}
	r.Contract = append(r.Contract[:0], hash...)
	return nil
}

// Refuse returns the error about a parameter that asks for what this server does not have, where leaving it out would make answers
// wrong, and nil about others, which mean nothing here.
func (r *Request) Refuse(parameter []byte) error {
	switch string(parameter) {
	case "sequence_id", "sequence_start", "sequence_end":
		return oip.Errorf(oip.Unimplemented, "parameter '%s': model '%s' keeps nothing between requests; give what it returned as inputs of the next request", parameter, r.spec.Name)
	case "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size":
		return oip.Errorf(oip.Unimplemented, "parameter '%s': this server shares no memory with clients; send the data", parameter)
	}
	return nil
}

// Input checks that the model has an input of that name, which the request did not name before, with
// that data type and shape, and returns its index and how many bytes its elements take.
func (r *Request) Input(name, datatype []byte, shape []int64) (index, size int, err error) {
	index = find(r.spec.Inputs, name)
	if index < 0 {
		return 0, 0, oip.Errorf(oip.InvalidArgument, "unexpected inference input '%s' for model '%s', expected %s", clip(name), r.spec.Name, names(r.spec.Inputs))
	}
	t := &r.spec.Inputs[index]
	if r.given&(1<<index) != 0 {
		return 0, 0, oip.Errorf(oip.InvalidArgument, "input '%s' for model '%s' is given twice", t.Name, r.spec.Name)
	}
	r.given |= 1 << index
	if oip.ParseDataType(datatype) != t.Type {
		return 0, 0, oip.Errorf(oip.InvalidArgument, "inference input '%s' data-type is '%s', but model '%s' expects '%s'", t.Name, clip(datatype), r.spec.Name, t.Type)
	}
	n, err := r.elements(t, shape)
	if err != nil {
		return 0, 0, err
	}
	if r.spec.Samples > 0 {
		if r.rows >= 0 && shape[0] != r.rows {
			return 0, 0, oip.Errorf(oip.InvalidArgument, "input '%s' of model '%s' has %d samples, but input '%s' has %d", t.Name, r.spec.Name, shape[0], r.spec.Inputs[r.first].Name, r.rows)
		}
		r.rows, r.first = shape[0], index
	}
	return index, int(n) * t.Type.Size(), nil
}

func (r *Request) elements(t *oip.Tensor, shape []int64) (int64, error) {
	n, fits := elements(t, shape)
	if !fits || len(shape) > 0 && r.spec.Samples > 0 && shape[0] == 0 {
		return 0, oip.Errorf(oip.InvalidArgument, "unexpected shape for input '%s' for model '%s'. Expected %s, got %s", t.Name, r.spec.Name, Shape(t), sizes(shape))
	}
	return n, nil
}

// elements returns how many elements a tensor of that shape has, and whether it may have that shape.
func elements(t *oip.Tensor, shape []int64) (int64, bool) {
	fits := len(shape) == len(t.Shape)
	n := uint64(1)
	for i := 0; fits && i < len(shape); i++ {
		switch d := shape[i]; {
		case d < 0, t.Shape[i] >= 0 && d != t.Shape[i], d > t.Largest(i):
			fits = false
		default:
			hi, lo := bits.Mul64(n, uint64(d))
			fits, n = hi == 0 && lo <= math.MaxInt64/16, lo
		}
	}
	return int64(n), fits
}

// Output asks for an output by its name. It returns the index in r.Wanted.
func (r *Request) Output(name []byte) (int, error) {
	i := find(r.spec.Outputs, name)
	if i < 0 {
		return 0, oip.Errorf(oip.InvalidArgument, "unexpected inference output '%s' for model '%s', expected %s", clip(name), r.spec.Name, names(r.spec.Outputs))
	}
	if r.asked&(1<<i) != 0 {
		return 0, oip.Errorf(oip.InvalidArgument, "output '%s' for model '%s' is asked for twice", r.spec.Outputs[i].Name, r.spec.Name)
	}
	r.asked |= 1 << i
	r.Wanted = append(r.Wanted, Wanted{Index: i})
	return len(r.Wanted) - 1, nil
}

// Done checks, once all inputs and outputs are read, that no input is missing. Outputs are all wanted if none was named.
func (r *Request) Done() error {
	for i := range r.spec.Inputs {
		if r.given&(1<<i) == 0 {
			return oip.Errorf(oip.InvalidArgument, "expected %d inputs but got %d inputs for model '%s'. Input '%s' is missing", len(r.spec.Inputs), bits.OnesCount64(r.given), r.spec.Name, r.spec.Inputs[i].Name)
		}
	}
	if len(r.Wanted) == 0 {
		for i := range r.spec.Outputs {
			r.Wanted = append(r.Wanted, Wanted{Index: i, Binary: r.Binary})
		}
	}
	return nil
}

// Samples returns how many samples the inputs have, 1 of a model that does not count them.
func (r *Request) Samples() int { return int(max(r.rows, 1)) }

func find(of []oip.Tensor, name []byte) int {
	for i := range of {
		if of[i].Name == string(name) {
			return i
		}
	}
	return -1
}

// Shape shows the sizes that a tensor may have: [-1,16], with "at most" where a size is open.
func Shape(t *oip.Tensor) string {
	if !t.Open() {
		return sizes(t.Shape)
	}
	return sizes(t.Shape) + " of at most " + sizes(t.Max)
}

func sizes(shape []int64) string {
	const most = 16
	var b strings.Builder
	b.WriteByte('[')
	for i, d := range shape {
		if i == most {
			fmt.Fprintf(&b, ",… %d more", len(shape)-most)
			break
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%d", d)
	}
	b.WriteByte(']')
	return b.String()
}

func names(of []oip.Tensor) string {
	all := make([]string, len(of))
	for i := range of {
		all[i] = "'" + of[i].Name + "'"
	}
	return strings.Join(all, ", ")
}

// clip shortens what a client wrote for an error.
func clip(s []byte) string {
	const most = 64
	if len(s) > most {
		return strings.ToValidUTF8(string(s[:most]), "�") + "…"
	}
	return strings.ToValidUTF8(string(s), "�")
}
