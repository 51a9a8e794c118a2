package genrt

import (
	"fmt"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/hostmem"
)

// RawInput is [Input] for a tool that learns the model's types at run time:
// the memory of a run is bytes, row-major and little-endian, of all device
// iterations back to back.
type RawInput struct {
	reading
	bytes int
}

// NewRawInput returns an input whose runs take that many bytes, which
// [Core.Open] checks.
func NewRawInput(bytes int) *RawInput { return &RawInput{bytes: bytes} }

// Bind makes the stream read mem, which must not change until the transfers
// are over. It fails with [rt.ErrLength] if mem has another size than a run's; a
// nil mem leaves the stream without memory.
func (in *RawInput) Bind(mem []byte) error {
	if len(mem) != in.bytes {
		return bindOdd(&in.Span, mem, in.bytes)
	}
	in.Over(mem)
	return nil
}

func (in *RawInput) Describe() (*hostmem.Span, int) { return &in.Span, in.bytes }

// RawOutput is an output over bytes, the counterpart of [RawInput].
type RawOutput struct {
	filling
	bytes int
}

// NewRawOutput returns an output whose runs fill that many bytes.
func NewRawOutput(bytes int) *RawOutput { return &RawOutput{bytes: bytes} }

// Bind makes the stream fill mem. It fails as [RawInput.Bind] does.
func (out *RawOutput) Bind(mem []byte) error {
	if len(mem) != out.bytes {
		return bindOdd(&out.Span, mem, out.bytes)
	}
	out.Over(mem)
	return nil
}

func (out *RawOutput) Describe() (*hostmem.Span, int) { return &out.Span, out.bytes }

// bindOdd is Bind with memory of another size than wanted.
func bindOdd(w *hostmem.Span, mem []byte, want int) error {
	if mem != nil {
		return fmt.Errorf("anchor %q: %w: %d bytes, want %d", w.Anchor, rt.ErrLength, len(mem), want)
	}
	w.Over(nil)
	return nil
}

// RawSamples views n consecutive samples of one tensor in data, as
// [SamplesOf] does with typed ones. It fails with [rt.ErrLength] if data can't be
// cut into n equal parts.
func RawSamples(data []byte, n int) (Samples, error) {
	if n < 0 || n == 0 && len(data) > 0 || n > 0 && len(data)%n != 0 {
		return Samples{}, fmt.Errorf("%w: %d bytes for %d samples", rt.ErrLength, len(data), n)
	}
	return Samples{Data: data, N: n}, nil
}

var (
	_ hostmem.Bound = (*RawInput)(nil)
	_ hostmem.Bound = (*RawOutput)(nil)
)
