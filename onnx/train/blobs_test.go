package train

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

func header(text, rest string) []byte {
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), rest...)
}

var headers = []struct{ text, rest, want string }{
	{`{"version":1,"size":7,"cuts":[{"at":2,"bytes":3,"anchor":"w"}]}`, "abcd", ""},
	{`{"version":1,"size":4,"cuts":[{"at":4,"bytes":0,"anchor":"w"}]}`, "abcd", ""},
	{`{"version":2}`, "", "it is of version 2, want 1"},
	{`{"version":1,"size":8,"cuts":[{"at":2,"bytes":3,"anchor":"w"}]}`, "abcd", "the model is to have 8 bytes, and is made of 4 and 3"},
	{`{"version":1,"size":7,"cuts":[{"at":5,"bytes":3,"anchor":"w"}]}`, "abcd", `the weight "w" is to be at offset 5 with 3 bytes, which does not fit`},
	{`{"version":1,"size":9,"cuts":[{"at":2,"bytes":3},{"at":4,"bytes":2}]}`, "abcd", "does not fit"},
	{`{"version":1,"size":4,"cuts":[{"at":0,"bytes":-4}]}`, "abcdefgh", "does not fit"},
	{`{"version":1,"size":4,"cuts":[{"at":9223372036854775807,"bytes":9223372036854775807}]}`, "abcd", "does not fit"},
	{`{`, "", "its header is not read"},
}

func TestReadHeader(t *testing.T) {
	for _, c := range headers {
		_, rest, err := readHeader(header(c.text, c.rest))
		if c.want == "" {
			require.NoError(t, err)
			require.Equal(t, c.rest, string(rest))
			continue
		}
		require.ErrorIs(t, err, ErrBlobs, c.text)
		require.ErrorContains(t, err, c.want)
	}
	for _, short := range [][]byte{nil, make([]byte, 7), header("{}", "")[:9]} {
		_, _, err := readHeader(short)
		require.ErrorIs(t, err, ErrBlobs)
	}
}

// FuzzReadHeader holds what is taken to what [Extract] needs of it.
func FuzzReadHeader(f *testing.F) {
	for _, c := range headers {
		f.Add(header(c.text, c.rest))
	}
	f.Fuzz(func(t *testing.T, blob []byte) {
		h, rest, err := readHeader(blob)
		if err != nil {
			return
		}
		at := int64(0) // as in Extract
		for _, c := range h.Cuts {
			require.GreaterOrEqual(t, c.At, at)
			require.LessOrEqual(t, c.At-at, int64(len(rest)))
			rest = rest[c.At-at:]
			at = c.At + c.Bytes
		}
		require.Equal(t, h.Size, at+int64(len(rest)))
	})
}
