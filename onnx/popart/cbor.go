package popart

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
)

// cborOfJSON returns a JSON document as CBOR (RFC 8949): keys are in the order of its deterministic encoding, whole numbers of 64 bits are integers and all others doubles.
func cborOfJSON(text []byte) ([]byte, error) {
	from := json.NewDecoder(bytes.NewReader(text))
	from.UseNumber()
	var v any
	if err := from.Decode(&v); err != nil {
		return nil, err
	}
	return appendCBOR(nil, v)
}

// The major types of CBOR, in the upper three bits of the first byte.
const (
	cborUint  = 0 << 5
	cborNeg   = 1 << 5
	cborText  = 3 << 5
	cborArray = 4 << 5
	cborMap   = 5 << 5

	cborFalse, cborTrue, cborNull, cborDouble = 0xf4, 0xf5, 0xf6, 0xfb
)

func appendCBOR(b []byte, v any) (_ []byte, err error) {
	switch v := v.(type) {
	case nil:
		return append(b, cborNull), nil
	case bool:
		if v {
			return append(b, cborTrue), nil
		}
		return append(b, cborFalse), nil
	case string:
		return append(appendHead(b, cborText, uint64(len(v))), v...), nil
	case json.Number:
		return appendNumber(b, v)
	case []any:
		b = appendHead(b, cborArray, uint64(len(v)))
		for _, e := range v {
			if b, err = appendCBOR(b, e); err != nil {
				return nil, err
			}
		}
		return b, nil
	case map[string]any:
		keys := slices.SortedFunc(maps.Keys(v), func(x, y string) int { // as their encodings, which begin with the length
			return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
		})
		b = appendHead(b, cborMap, uint64(len(keys)))
		for _, k := range keys {
			b = append(appendHead(b, cborText, uint64(len(k))), k...)
			if b, err = appendCBOR(b, v[k]); err != nil {
				return nil, err
			}
		}
		return b, nil
	}
	return nil, fmt.Errorf("%T has no CBOR form", v)
}

// appendHead appends a major type and its number, in as few bytes as that takes.
func appendHead(b []byte, major byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(b, major|byte(n))
	case n <= math.MaxUint8:
		return append(b, major|24, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, major|25), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, major|27), n)
}

func appendNumber(b []byte, n json.Number) ([]byte, error) {
	if u, err := strconv.ParseUint(string(n), 10, 64); err == nil {
		return appendHead(b, cborUint, u), nil
	}
	if i, err := n.Int64(); err == nil { // negative
		return appendHead(b, cborNeg, uint64(-1-i)), nil
	}
	f, err := n.Float64()
	return binary.BigEndian.AppendUint64(append(b, cborDouble), math.Float64bits(f)), err
}
