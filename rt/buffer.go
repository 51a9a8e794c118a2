package rt

import (
	"context"
	"fmt"

	"github.com/popefgen/popefgen/ipu"
)

// Buffer is host memory for one stream of a [Session] whose model is only
// known at run time: tools use it where generated code has typed tensors. It
// holds the data of one run, which is one transfer, or one for each device
// iteration. Every program of every run starts at the first transfer. Use one
// Buffer for one stream; its data may be read and written between runs.
type Buffer struct {
	window
	input bool
}

// NewBuffer allocates a Buffer for a stream as [Session.Stream] and
// [Session.Streams] describe it. transfers, the number of transfers in a run,
// is at least 1: [Session.DeviceIterations] for run inputs and outputs, else 1.
func NewBuffer(info ipu.StreamInfo, transfers int) (*Buffer, error) {
	const most = 1 << 46 // so that the product below stays an int
	if transfers < 1 || info.Bytes < 0 || info.Bytes > 0 && transfers > most/info.Bytes {
		return nil, fmt.Errorf("buffer for stream %q: %w: %d transfers of %d bytes", info.Handle, ErrOption, transfers, info.Bytes)
	}
	b := &Buffer{input: info.Direction == ipu.HostToDevice}
	b.window = window{anchor: info.Handle, at: ipu.Window{Block: make([]byte, info.Bytes*transfers), Size: info.Bytes, Count: transfers}}
	return b, nil
}

// Bytes returns the memory of all transfers, back to back. It is the same at
// every call.
func (b *Buffer) Bytes() []byte { return b.at.Block }

// Transfers returns how many transfers the last run completed; if several of
// its programs made transfers, how many the last of these did.
func (b *Buffer) Transfers() int {
	if b.at.Done > 0 {
		return b.at.Done
	}
	return b.before
}

// Memory returns the memory of the next transfer.
func (b *Buffer) Memory(context.Context) ([]byte, error) { return b.next() }

// Fetch moves the next transfer.
func (b *Buffer) Fetch(_ context.Context, buf []byte) error {
	if b.input {
		return b.read(buf)
	}
	return b.write(buf)
}

// Prefetch copies the next transfer of an input into buf, if there is one.
func (b *Buffer) Prefetch(buf []byte) bool { return b.input && b.more() && b.read(buf) == nil }

var _ ipu.Windowed = (*Buffer)(nil)
