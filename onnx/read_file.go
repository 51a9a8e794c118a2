package onnx

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/popefgen/popefgen/internal/budget"
)

// readBytes is how much of a file is read between two looks at the context: some
// milliseconds.
const readBytes = 8 << 20

// contents returns what the file at path holds, until ctx is done. Its bytes count
// on the budget of ctx before there is memory for them: those of a regular file at
// once, those of anything else, which may have no end, as they come.
func contents(ctx context.Context, path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	room, size := budget.From(ctx), int64(0)
	if st.Mode().IsRegular() {
		size = st.Size()
	}
	if err := room.Take(size, "%s", path); err != nil {
		return nil, err
	}
	b := make([]byte, 0, size)
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(b) == cap(b) {
			var next [1]byte // a file ends where it should, mostly
			n, err := f.Read(next[:])
			if n == 0 && err == io.EOF {
				return b, nil
			}
			if err != nil {
				return nil, err
			}
			more := int64(max(cap(b), 1<<16))
			if err := room.Take(more, "%s", path); err != nil {
				return nil, err
			}
			b = append(slices.Grow(b, int(more)), next[:n]...)
		}
		n, err := f.Read(b[len(b):min(cap(b), len(b)+readBytes)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
