package modelrt

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/ring"
)

// The errors of pools, for errors.Is.
var (
	// ErrInUse: the blob whose turn it is was handed out and not released: the
	// pool is too small, or a release is missing.
	ErrInUse = errors.New("blob is in use")
	// ErrNotInUse: a blob was released that is not in use.
	ErrNotInUse = errors.New("blob is not in use")
)

// maxPool bounds the memory of a pool.
const maxPool = 1 << 40

// RingPool is a fixed number of blobs of memory of one size, which are handed
// out one after the other, and again from the first. It hands out no blob that
// is in use. Any goroutine may use it.
type RingPool struct {
	blobs []Blob
	size  int

	mu   sync.Mutex
	next int // whose turn it is
}

// Blob is one piece of memory of a pool.
type Blob struct {
	bytes []byte
	inUse atomic.Bool
	done  func(error)
}

// NewRingPool allocates count blobs of size bytes each. A number that is out
// of range is an [rt.ErrOption].
func NewRingPool(size, count int) (*RingPool, error) {
	if size < 0 || count < 1 || count > ring.MaxSize || size > maxPool/count {
		return nil, fmt.Errorf("ring pool: %w: %d blobs of %d bytes", rt.ErrOption, count, size)
	}
	p := &RingPool{blobs: make([]Blob, count), size: size}
	memory := make([]byte, size*count)
	for i := range p.blobs {
		b := &p.blobs[i]
		b.bytes = memory[i*size : (i+1)*size : (i+1)*size]
		b.done = func(error) { _ = b.Release() }
	}
	return p, nil
}

// NewQueuePool allocates what backs a queue: a blob of one transfer's size for
// each of its buffers, and extra ones, 0 or more, for memory that is being
// filled or read outside of the queue.
func NewQueuePool(q Queue, extra int) (*RingPool, error) {
	size, err := q.Info().SizeInBytes()
	if err == nil && extra < 0 {
		err = fmt.Errorf("%w: %d extra blobs", rt.ErrOption, extra)
	}
	if err != nil {
		return nil, fmt.Errorf("pool for queue of anchor %q: %w", q.Name(), err)
	}
	return NewRingPool(int(size), q.NumBuffers()+extra)
}

// NumBlobs returns the number of blobs.
func (p *RingPool) NumBlobs() int { return len(p.blobs) }

// BlobSize returns the size of a blob in bytes.
func (p *RingPool) BlobSize() int { return p.size }

// Get returns the blob whose turn it is. It fails with [ErrInUse] if that was
// not released; the turn does not pass on then.
func (p *RingPool) Get() (*Blob, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := &p.blobs[p.next]
	if !b.inUse.CompareAndSwap(false, true) {
		return nil, fmt.Errorf("ring pool: %w: number %d of %d", ErrInUse, p.next+1, len(p.blobs))
	}
	p.next = (p.next + 1) % len(p.blobs)
	return b, nil
}

// Bytes returns the blob's memory. It must not be used after Release.
func (b *Blob) Bytes() []byte { return b.bytes }

// Release gives the blob back. It fails with [ErrNotInUse] if that was done.
func (b *Blob) Release() error {
	if !b.inUse.CompareAndSwap(true, false) {
		return fmt.Errorf("ring pool: %w", ErrNotInUse)
	}
	return nil
}

// Done returns Release as a function for [InputData] and [OutputData], made
// once: using it allocates nothing.
func (b *Blob) Done() func(error) { return b.done }
