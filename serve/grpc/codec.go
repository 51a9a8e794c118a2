package grpcserve

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// message is a message with a codec of its own.
type message interface {
	decode(data mem.BufferSlice) error
	encode() (mem.BufferSlice, error)
}

// codec encodes messages themselves, and all others as grpc-go's codec of protobuf does.
type codec struct{ others encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Name returns what content types have for protobuf: on the wire there is no difference.
func (codec) Name() string { return proto.Name }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(message); ok {
		return m.encode()
	}
	b, err := c.others.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return b, nil
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(message); ok {
		return m.decode(data)
	}
	if err := c.others.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode %T: %w", v, err)
	}
	return nil
}

// segments appends the parts of a message to a list.
func segments(to [][]byte, data mem.BufferSlice) [][]byte {
	for _, b := range data {
		to = append(to, b.ReadOnlyData())
	}
	return to
}

// buffer returns memory for a message of size bytes. Buffers of up to 1 KiB are not pooled by grpc-go: they are garbage, with the
// value that points to them.
func buffer(size int) (*[]byte, mem.BufferPool) {
	pool := mem.DefaultBufferPool()
	b := pool.Get(max(size, 1<<10+1))
	*b = (*b)[:0]
	return b, pool
}
