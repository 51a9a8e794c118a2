package grpcserve

import (
	"compress/zlib"
	"io"
	"sync"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // which grpc-go has, and registers if it is asked to
)

// Messages may be compressed, by gzip and by deflate; answers are then as their request was. What is inside is limited as a
// message is.
func init() { encoding.RegisterCompressor(&deflate{}) }

// deflate is the compression of that name, which clients on gRPC's core have: the format of zlib (RFC 1950).
type deflate struct{ writers, readers sync.Pool }

// Name returns its name in grpc-encoding.
func (*deflate) Name() string { return "deflate" }

// Compress returns a writer that compresses to w.
func (d *deflate) Compress(w io.Writer) (io.WriteCloser, error) {
	z, ok := d.writers.Get().(*deflater)
	if !ok {
		z = &deflater{zlib.NewWriter(w), &d.writers}
	}
	z.Reset(w)
	return z, nil
}

// Decompress returns a reader of what is compressed in r.
func (d *deflate) Decompress(r io.Reader) (io.Reader, error) {
	z, ok := d.readers.Get().(*inflater)
	if !ok {
		first, err := zlib.NewReader(r)
		if err != nil {
			return nil, err
		}
		return &inflater{first, &d.readers}, nil
	}
	if err := z.ReadCloser.(zlib.Resetter).Reset(r, nil); err != nil {
		d.readers.Put(z)
		return nil, err
	}
	return z, nil
}

// deflater is a writer that is used again.
type deflater struct {
	*zlib.Writer
	pool *sync.Pool
}

func (z *deflater) Close() error {
	defer z.pool.Put(z)
	return z.Writer.Close()
}

// inflater is a reader that is used again.
type inflater struct {
	io.ReadCloser
	pool *sync.Pool
}

func (z *inflater) Close() error {
	defer z.pool.Put(z)
	return z.ReadCloser.Close()
}
