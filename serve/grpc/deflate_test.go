package grpcserve

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/popefgen/popefgen/serve/grpc/internal/inference"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

// TestCompression asks with messages that are compressed, one after the other, and refuses one with more inside than a message may have.
func TestCompression(t *testing.T) {
	addr, _ := running(t, []oip.Model{testmodel.Simple()})
	c := plain(t, addr)
	for _, name := range []string{"gzip", "deflate"} {
		for n := range testmodel.Samples {
			q, want := simple(n + 1)
			a := &pb.ModelInferResponse{}
			require.NoError(t, c.Invoke(t.Context(), inferMethod, q, a, grpc.UseCompressor(name)), name)
			require.True(t, proto.Equal(want, a), "%s: %v", name, a)
		}
		bomb := &pb.ModelInferRequest{ModelName: "simple", RawInputContents: [][]byte{make([]byte, 64<<20)}}
		err := c.Invoke(t.Context(), inferMethod, bomb, &pb.ModelInferResponse{}, grpc.UseCompressor(name))
		require.Equal(t, codes.ResourceExhausted, status.Code(err), "%s: %v", name, err)
		q, _ := simple(1)
		require.NoError(t, c.Invoke(t.Context(), inferMethod, q, &pb.ModelInferResponse{}, grpc.UseCompressor(name)), "after a refused one")
	}
}

// TestFormats reads with the standard library what is compressed here, and the other way round, again and again, with damage in between.
func TestFormats(t *testing.T) {
	text := bytes.Repeat([]byte("some text "), 1000)
	for name, format := range map[string]struct {
		writer func(io.Writer) io.WriteCloser
		reader func(io.Reader) (io.Reader, error)
	}{
		"gzip":    {func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }, func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
		"deflate": {func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }, func(r io.Reader) (io.Reader, error) { return zlib.NewReader(r) }},
	} {
		ours := encoding.GetCompressor(name)
		require.NotNil(t, ours, name)
		for i := range 3 {
			of := append(text, fmt.Sprint(i)...)
			var z bytes.Buffer
			w, err := ours.Compress(&z)
			require.NoError(t, err)
			_, err = w.Write(of)
			require.NoError(t, err)
			require.NoError(t, w.Close())
			theirs, err := format.reader(bytes.NewReader(z.Bytes()))
			require.NoError(t, err)
			got, err := io.ReadAll(theirs)
			require.NoError(t, err)
			require.Equal(t, of, got)

			z.Reset()
			to := format.writer(&z)
			_, err = to.Write(of)
			require.NoError(t, err)
			require.NoError(t, to.Close())
			from, err := ours.Decompress(bytes.NewReader(z.Bytes()))
			require.NoError(t, err)
			got, err = io.ReadAll(from)
			require.NoError(t, err)
			require.Equal(t, of, got)
			require.NoError(t, from.(io.Closer).Close())
			_, err = ours.Decompress(bytes.NewReader(text))
			require.Error(t, err, "no header")
		}
	}
}
