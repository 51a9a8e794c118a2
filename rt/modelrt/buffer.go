package modelrt

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/hostmem"
)

// kept is the memory of a Buffer, under a name that nobody else sees.
type kept = hostmem.Held

// Buffer is host memory for one stream of a [rt.Session] whose model is only
// known at run time: tools use it where generated code has typed tensors. It
// holds the data of one run, which is one transfer, or one for each device
// iteration. Every program of every run starts at the first transfer. Use one
// Buffer for one stream; its data may be read and written between runs.
type Buffer struct{ kept }

// NewBuffer allocates a Buffer for a stream as [rt.Session.Stream] and
// [rt.Session.Streams] describe it. transfers, the number of transfers in a run,
// is at least 1: see Transfers of [rt.Session.Contract].
func NewBuffer(info ipu.StreamInfo, transfers int) (*Buffer, error) {
	const most = 1 << 46 // so that the product below stays an int
	if transfers < 1 || info.Bytes < 0 || info.Bytes > 0 && transfers > most/info.Bytes {
		return nil, fmt.Errorf("buffer for stream %q: %w: %d transfers of %d bytes", info.Handle, rt.ErrOption, transfers, info.Bytes)
	}
	memory := hostmem.Span{Anchor: info.Handle, At: ipu.Window{Block: make([]byte, info.Bytes*transfers), Size: info.Bytes, Count: transfers}}
	return &Buffer{hostmem.NewHeld(memory, info.Direction == ipu.HostToDevice)}, nil
}

// Bytes returns the memory of all transfers, back to back. It is the same at
// every call.
func (b *Buffer) Bytes() []byte { return b.Buffer().At.Block }

// Transfers returns how many transfers the last run completed; if several of
// its programs made transfers, how many the last of these did.
func (b *Buffer) Transfers() int {
	if b.Buffer().At.Done > 0 {
		return b.Buffer().At.Done
	}
	return b.Buffer().Before
}

var _ ipu.Windowed = (*Buffer)(nil)
