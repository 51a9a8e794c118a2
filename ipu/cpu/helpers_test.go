package cpu

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
)

// f32 is the type of a float32 tensor.
func f32(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: shape} }

// bytesOf is v's memory.
func bytesOf[T any](v []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(zero)))
}

// floats copies the float32 elements of b.
func floats(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	copy(bytesOf(out), b)
	return out
}

// node adds a node and returns its first result.
func node(t require.TestingT, b *graph.Builder, op graph.Op, name string, in ...graph.TensorID) graph.TensorID {
	out, err := b.Node(op, name, in...)
	require.NoError(t, err)
	return out[0]
}

// executable encodes what b built.
func executable(t require.TestingT, b *graph.Builder) []byte {
	exe, err := b.Finish()
	require.NoError(t, err)
	var buf bytes.Buffer
	require.NoError(t, encoding.Encode(&buf, exe))
	return buf.Bytes()
}

// opt makes options of "name=value" pairs, name first.
func opt(pairs ...string) []ipu.Option {
	var out []ipu.Option
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, ipu.Option{Name: pairs[i], Value: pairs[i+1]})
	}
	return out
}

// newLoaded makes an engine of what b built and loads it.
func newLoaded(t testing.TB, b *graph.Builder, options ...ipu.Option) *Engine {
	t.Helper()
	e, err := New(ipu.EngineConfig{Name: t.Name(), Executable: executable(t, b), Options: options})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	load(t, e)
	return e
}

func load(t require.TestingT, e *Engine) {
	d := &device{}
	d.Attach()
	require.NoError(t, e.Load(context.Background(), d))
}

// host is a stream that moves a list of transfers, over and over. It checks
// that every transfer is completed once, before the next one begins.
type host struct {
	t         require.TestingT
	items     [][]byte
	at        int
	open      bool // the current transfer was begun
	fetched   int
	completed int
	err       error
	onFetch   func()
}

func newHost(t require.TestingT, items ...[]byte) *host { return &host{t: t, items: items} }

// transfer returns the memory of the current transfer.
func (h *host) transfer() []byte { return h.items[h.at%len(h.items)] }

func (h *host) begin() {
	require.False(h.t, h.open, "a transfer begins before the one before it is complete")
	h.open = true
	h.fetched++
	if h.onFetch != nil {
		h.onFetch()
	}
}

func (h *host) Complete() {
	require.True(h.t, h.open, "Complete without a transfer")
	h.open = false
	h.at++
	h.completed++
}

func (h *host) Prefetch([]byte) bool  { panic("the engine must not prefetch") }
func (h *host) InvalidatePrefetched() {}

// feeder is an input that is fetched.
type feeder struct{ *host }

func (s feeder) Fetch(ctx context.Context, buf []byte) error {
	s.begin()
	copy(buf, s.transfer())
	return s.err
}

// drain is an output that is fetched.
type drain struct{ *host }

func (s drain) Fetch(ctx context.Context, buf []byte) error {
	s.begin()
	copy(s.transfer(), buf)
	return s.err
}

// direct is a stream, either way, with memory.
type direct struct{ *host }

func (s direct) Fetch(context.Context, []byte) error { return fmt.Errorf("fetch of a direct stream") }
func (s direct) Memory(ctx context.Context) ([]byte, error) {
	s.begin()
	return s.transfer(), s.err
}

// constant is an input whose memory does not change.
type constant struct{ direct }

func (s constant) Constant() []byte {
	s.open = true
	return s.transfer()
}

// releaser is a constant that counts how often it is released.
type releaser struct {
	constant
	released *int
}

func (s releaser) Release() { *s.released++ }

// connect attaches streams by handle.
func connect(t require.TestingT, e *Engine, streams map[string]ipu.Stream) {
	for handle, s := range streams {
		require.NoError(t, e.Connect(handle, s))
	}
}

// in and out are direct streams of float32 elements.
func in(t require.TestingT, v []float32) ipu.Stream  { return direct{newHost(t, bytesOf(v))} }
func out(t require.TestingT, v []float32) ipu.Stream { return direct{newHost(t, bytesOf(v))} }

// run runs a program.
func run(t require.TestingT, e runner, program int) {
	require.NoError(t, e.Run(context.Background(), program))
}
