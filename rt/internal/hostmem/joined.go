package hostmem

import (
	"context"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
)

// Joined is the host's side of a stream whose transfers have several inputs side by side, each of which
// has a stream of its own on this side. Where all of them are in one block of memory as they
// are in a transfer, that is handed out; otherwise they are copied side by side.
type Joined struct {
	parts []joinedPart
	own   []byte // a transfer
	block Span   // memory that inputs may lie in; without memory if they do not
	have  int    // parts that were moved ahead to own
}

// joinedPart is one input.
type joinedPart struct {
	at, size int
	stream   ipu.Stream
	direct   ipu.Direct  // stream, if it is one
	window   *ipu.Window // of stream, if it has one
}

// NewJoined returns the host's side of a stream with transfers of that many bytes.
func NewJoined(bytes int) *Joined { return &Joined{own: make([]byte, bytes)} }

// Add adds an input of size bytes that begins at byte at, and returns its number.
func (j *Joined) Add(at, size int) int {
	j.parts = append(j.parts, joinedPart{at: at, size: size})
	return len(j.parts) - 1
}

// Set makes s the stream of an input.
func (j *Joined) Set(part int, s ipu.Stream) {
	p := &j.parts[part]
	p.stream, p.window = s, nil
	p.direct, _ = s.(ipu.Direct)
	if w, ok := s.(ipu.Windowed); ok && w.Window().Size == p.size {
		p.window = w.Window()
	}
}

// Block has the memory that inputs may lie in, of one transfer; it is forgotten with the transfer.
func (j *Joined) Block() *Span { return &j.block }

// Bytes returns the size of a transfer.
func (j *Joined) Bytes() int { return len(j.own) }

// inPlace returns the memory that all inputs lie in as in a transfer, nil if there is none.
func (j *Joined) inPlace() []byte {
	m := j.block.At.Block
	if len(m) != len(j.own) || j.have > 0 {
		return nil
	}
	base := uintptr(unsafe.Pointer(unsafe.SliceData(m)))
	for i := range j.parts {
		p := &j.parts[i]
		if p.size == 0 {
			continue
		}
		w := p.window
		if w == nil || w.Count != 1 || w.Done+w.Ahead > 0 || w.Block == nil || uintptr(unsafe.Pointer(unsafe.SliceData(w.Block))) != base+uintptr(p.at) {
			return nil
		}
	}
	return m
}

// Memory returns the next transfer.
func (j *Joined) Memory(ctx context.Context) ([]byte, error) {
	if m := j.inPlace(); m != nil {
		return m, nil
	}
	if err := j.gather(ctx); err != nil {
		return nil, err
	}
	return j.own, nil
}

// Fetch copies the next transfer into buf.
func (j *Joined) Fetch(ctx context.Context, buf []byte) error {
	m, err := j.Memory(ctx)
	copy(buf, m)
	return err
}

// gather copies what is missing of the next transfer into own. If that fails nothing of it counts
// as moved.
func (j *Joined) gather(ctx context.Context) (err error) {
	done := false
	defer func() { // also if a stream of the caller panics
		if j.have = 0; !done {
			j.InvalidatePrefetched()
		}
	}()
	for i := j.have; i < len(j.parts); i++ {
		p := &j.parts[i]
		if err := p.read(ctx, j.own[p.at:p.at+p.size:p.at+p.size]); err != nil {
			return err
		}
	}
	done = true
	return nil
}

// read moves the next transfer of an input to buf.
func (p *joinedPart) read(ctx context.Context, buf []byte) error {
	if p.window != nil {
		if m := p.window.Next(); m != nil {
			copy(buf, m)
			return nil
		}
	}
	if p.stream == nil {
		return ipu.ErrUnconnected
	}
	if p.direct != nil {
		m, err := p.direct.Memory(ctx)
		if err != nil {
			return err
		}
		if m != nil {
			copy(buf, m)
			return nil
		}
	}
	return p.stream.Fetch(ctx, buf)
}

// Prefetch copies the next transfer into buf, if all inputs have one. Those that have one before
// others keep it.
func (j *Joined) Prefetch(buf []byte) bool {
	for ; j.have < len(j.parts); j.have++ {
		p := &j.parts[j.have]
		if p.stream == nil || !p.stream.Prefetch(j.own[p.at:p.at+p.size:p.at+p.size]) {
			return false
		}
	}
	copy(buf, j.own)
	j.have = 0
	return true
}

// Complete ends the oldest transfer.
func (j *Joined) Complete() {
	j.block.Clear()
	for i := range j.parts {
		if p := &j.parts[i]; p.window != nil {
			p.window.Complete()
		} else if p.stream != nil {
			p.stream.Complete()
		}
	}
}

// InvalidatePrefetched takes back every transfer that is not complete.
func (j *Joined) InvalidatePrefetched() {
	j.have = 0
	for i := range j.parts {
		if s := j.parts[i].stream; s != nil {
			s.InvalidatePrefetched()
		}
	}
}

var _ ipu.Direct = (*Joined)(nil)
