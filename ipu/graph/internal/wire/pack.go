package wire

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/pierrec/lz4/v4"
)

// What a file may become.
const (
	inflatedBase   = 1 << 16 // bytes of sections, and
	inflatedFactor = 64      // for each byte that they take compressed, up to
	inflatedMost   = 64 << 20
	memoryBase     = 128 << 20 // bytes of what they describe, and
	memoryFactor   = 32        // for each byte of the file
)

// Pack compresses sections of the compact form, behind a u64 that says how many bytes they
// are. It returns nil where that is not possible.
func Pack(sections []byte) []byte {
	b := make([]byte, 8+lz4.CompressBlockBound(len(sections)))
	binary.LittleEndian.PutUint64(b, uint64(len(sections)))
	n, err := lz4.CompressBlockHC(sections, b[8:], lz4.Level9, nil, nil)
	if err != nil || n == 0 {
		return nil
	}
	return slices.Clone(b[:8+n])
}

// Unpack returns a reader of packed sections of a file of so many bytes.
func Unpack(packed []byte, file int) (*Reader, error) {
	if len(packed) < 8 {
		return nil, fmt.Errorf("its sections are %d bytes long, want at least 8", len(packed))
	}
	size := binary.LittleEndian.Uint64(packed)
	packed = packed[8:]
	most := uint64(min(inflatedMost, inflatedBase+inflatedFactor*len(packed)))
	if size > most {
		return nil, fmt.Errorf("its sections are to become %d bytes, want at most %d, since they take %d compressed", size, most, len(packed))
	}
	b := make([]byte, size)
	if n, err := lz4.UncompressBlock(packed, b); err != nil {
		return nil, fmt.Errorf("decompress its sections: %w", err)
	} else if uint64(n) != size {
		return nil, fmt.Errorf("its sections are %d bytes decompressed, want %d as is said before them", n, size)
	}
	return NewCompact(b, memoryBase+memoryFactor*int64(file)), nil
}
