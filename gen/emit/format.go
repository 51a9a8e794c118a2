package emit

import (
	"bytes"
	"go/format"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
)

// formatted returns a file as gofmt writes it, with imports of the standard library
// apart from others.
func formatted(data []byte) ([]byte, error) {
	data, err := gofmt(data, pieceSize)
	if err != nil {
		return nil, err
	}
	const begin, end = "\nimport (\n", "\n)\n"
	from := bytes.Index(data, []byte(begin))
	if from < 0 {
		return data, nil
	}
	from += len(begin)
	to := bytes.Index(data[from:], []byte(end))
	if to < 0 {
		return data, nil
	}
	var standard, others []byte
	for line := range bytes.Lines(data[from : from+to+1]) {
		_, path, found := bytes.Cut(line, []byte{'"'})
		first, _, _ := bytes.Cut(path, []byte{'/'})
		switch {
		case !found: // between groups
		case bytes.ContainsRune(first, '.'):
			others = append(others, line...)
		default:
			standard = append(standard, line...)
		}
	}
	if len(standard) > 0 && len(others) > 0 {
		standard = append(standard, '\n')
	}
	return slices.Concat(data[:from], standard, others, data[from+to+1:]), nil
}

// pieceSize is how many bytes of a file are formatted at a time: what is smaller
// gains nothing from a second core.
const pieceSize = 1 << 18

// gofmt is [format.Source] of a whole file, in pieces of size bytes or more at a
// time on each core. Syntax trees of ten thousand anchors at once are most of what
// generating them takes.
func gofmt(data []byte, size int) ([]byte, error) {
	all := pieces(data, size)
	if len(all) < 2 {
		return format.Source(data)
	}
	var each errgroup.Group
	each.SetLimit(runtime.GOMAXPROCS(0))
	for i := range all {
		each.Go(func() error {
			text := all[i]
			if i > 0 {
				text = slices.Concat([]byte(clause), text)
			}
			out, err := format.Source(text)
			if err == nil && i > 0 {
				out = bytes.TrimPrefix(out, []byte(clause))
			}
			all[i] = out
			return err
		})
	}
	if err := each.Wait(); err != nil {
		return format.Source(data) // with an error that tells of the whole file, if it is one of the file
	}
	return bytes.Join(all, []byte("\n")), nil
}

// clause makes declarations a file.
const clause = "package p\n\n"

// pieces cuts a file into declarations of size bytes or more together, which
// gofmt writes with an empty line between them. It cuts where the line before an
// empty one closes a block and the next, comments apart, can begin nothing but a declaration of the file: within
// functions no line begins with these words and a space.
func pieces(data []byte, size int) (all [][]byte) {
	const gap = "}\n\n"
	for from := size; from < len(data); {
		at := bytes.Index(data[from:], []byte("\n"+gap))
		if at < 0 {
			break
		}
		at += from + len("\n"+gap)
		if from = at; !declares(data[at:]) {
			continue
		}
		all = append(all, data[:at])
		data, from = data[at:], size
	}
	return append(all, data)
}

// declares reports whether source begins with a function or a type, before which
// empty lines and comments may stand.
func declares(src []byte) bool {
	for line := range bytes.Lines(src) {
		switch {
		case len(bytes.TrimSpace(line)) == 0, bytes.HasPrefix(line, []byte("//")):
		default:
			return bytes.HasPrefix(line, []byte("func ")) || bytes.HasPrefix(line, []byte("type "))
		}
	}
	return false
}
