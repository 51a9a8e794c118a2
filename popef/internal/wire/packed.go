package wire

import (
	"errors"
	"fmt"
	"slices"
)

// ReadPacked reads the packed message at off, like [Read]. Packing lets two
// bytes stand for 2 KiB, so limit is what keeps memory in bounds.
func ReadPacked(v View, off, limit int64) (Message, error) {
	u := unpacker{v: v, off: off}
	first, err := u.words(nil, 1)
	if err != nil {
		return Message{}, err
	}
	n, err := segmentCount(first)
	if err != nil {
		return Message{}, err
	}
	t, err := u.words(first, tableSize(n)/8-1)
	if err != nil {
		return Message{}, err
	}
	sizes, total := segmentSizes(t, n)
	if total > limit {
		return Message{}, fmt.Errorf("%w: it claims %d bytes, %d are allowed", ErrTooLarge, total, limit)
	}
	b, err := u.words(nil, int(total/8))
	if err != nil {
		return Message{}, err
	}
	if u.zeros != 0 || u.literals != 0 {
		return Message{}, errors.New("packed message: a run of words reaches beyond its end")
	}
	root, err := open(b, sizes)
	return Message{Root: root, End: u.off, Size: total}, err
}

// unpacker undoes the packing word by word, remembering a run of zero words or
// of literal words that it has not used up.
type unpacker struct {
	v               View
	off             int64
	zeros, literals int
}

func (u *unpacker) take(n int) ([]byte, error) {
	if u.v.Size()-u.off < int64(n) {
		return nil, ErrTruncated
	}
	b, err := u.v.At(u.off, n)
	u.off += int64(n)
	return b, err
}

// words appends n unpacked words to dst, growing it as they arrive.
func (u *unpacker) words(dst []byte, n int) ([]byte, error) {
	for want := len(dst) + 8*n; len(dst) < want; {
		switch {
		case u.zeros > 0:
			k := min(u.zeros, (want-len(dst))/8)
			n := len(dst)
			if cap(dst) < n+8*k {
				dst = slices.Grow(dst, min(max(8*k, n), want-n))
			}
			dst = dst[:n+8*k]
			clear(dst[n:])
			u.zeros -= k
		case u.literals > 0:
			k := min(u.literals, (want-len(dst))/8)
			b, err := u.take(8 * k)
			if err != nil {
				return nil, err
			}
			dst = append(dst, b...)
			u.literals -= k
		default:
			b, err := u.word()
			if err != nil {
				return nil, err
			}
			dst = append(dst, b[:]...)
		}
	}
	return dst, nil
}

// word reads a tag byte, the bytes it announces, and the length of the run
// that follows the tags 0x00 and 0xff.
func (u *unpacker) word() (w [8]byte, err error) {
	b, err := u.take(1)
	if err != nil {
		return w, err
	}
	tag := b[0]
	n := 0
	for i := range w {
		if tag>>i&1 == 1 {
			n++
		}
	}
	if n > 0 {
		if b, err = u.take(n); err != nil {
			return w, err
		}
		for i := range w {
			if tag>>i&1 == 1 {
				w[i], b = b[0], b[1:]
			}
		}
	}
	if tag == 0 || tag == 0xff {
		if b, err = u.take(1); err != nil {
			return w, err
		}
		if tag == 0 {
			u.zeros = int(b[0])
		} else {
			u.literals = int(b[0])
		}
	}
	return w, nil
}
