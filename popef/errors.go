package popef

import (
	"errors"
	"fmt"
	"strings"
)

// What can be wrong with PopEF files, for errors.Is. The error itself is an
// [*Error], or several of them joined.
var (
	// ErrFormat: the bytes are not what the format asks for.
	ErrFormat = errors.New("not a valid PopEF file")
	// ErrTruncated: the file ends before its last blob does.
	ErrTruncated = errors.New("truncated")
	// ErrLimit: something is larger than the reader's [Limits] allow.
	ErrLimit = errors.New("limit exceeded")
	// ErrCompression: an executable can't be decompressed.
	ErrCompression = errors.New("cannot decompress")
	// ErrNoModel: no metadata blob, hence no model.
	ErrNoModel = errors.New("no model")
	// ErrSeveralModels: more than one model where one was asked for.
	ErrSeveralModels = errors.New("several models")
	// ErrExecutableName: an executable without a name, or two of one name.
	ErrExecutableName = errors.New("bad executable name")
	// ErrMissingExecutable: metadata names an executable that is not there.
	ErrMissingExecutable = errors.New("missing executable")
	// ErrDuplicateMetadata: two metadata blobs for one executable.
	ErrDuplicateMetadata = errors.New("duplicate metadata")
	// ErrAmbiguousData: an anchor has both tensor data and feed data.
	ErrAmbiguousData = errors.New("ambiguous data")
	// ErrMismatch: data has another type or shape than its anchor.
	ErrMismatch = errors.New("type or shape mismatch")
	// ErrShortData: fewer bytes of data than type and shape ask for.
	ErrShortData = errors.New("too little data")
	// ErrNoData: the files carry no data of that name.
	ErrNoData = errors.New("no data")
	// ErrClosed: the Reader, Model or Writer has been closed.
	ErrClosed = errors.New("closed")
	// ErrJoined: what [JoinedBlob] says is not what the file holds.
	ErrJoined = errors.New("bad plan of joined inputs")
	// ErrChanged: a file that is open was written over, so that what was read of
	// it and what is still to be read don't belong together.
	ErrChanged = errors.New("model file was written over while it was open")
	// ErrDuplicate: a Writer was asked for a second blob of one name.
	ErrDuplicate = errors.New("duplicate name")
	// ErrSuperseded: write to a blob after the next one was started.
	ErrSuperseded = errors.New("blob already ended")
)

// Location is where in which file something was found.
type Location struct {
	File   string   // path or name of the file
	Blob   int      // number of the blob in its file, from 0; -1 for the file as a whole
	Kind   BlobKind // kind of the blob
	Name   string   // name of the blob; may be empty
	Offset int64    // offset in the file, in bytes
}

// String returns the likes of `lenet.popef@0x1f40: blob 3 (tensor data "w")`.
func (l Location) String() string {
	var b strings.Builder
	b.WriteString(l.File)
	if l.Blob < 0 {
		return b.String()
	}
	fmt.Fprintf(&b, "@%#x: blob %d", l.Offset, l.Blob)
	if l.Kind == unknownKind {
		return b.String()
	}
	fmt.Fprintf(&b, " (%v", l.Kind)
	if l.Name != "" {
		fmt.Fprintf(&b, " %q", shorten(l.Name))
	}
	b.WriteByte(')')
	return b.String()
}

// Error is an error of one place in one file.
type Error struct {
	Location
	Err  error  // what is wrong
	Hint string // what to do about it; may be empty
}

// Error returns the likes of
// `lenet.popef@0x1f40: blob 3 (tensor data "w"): 16 bytes, F32 [10] needs 40; hint: write the file again`.
func (e *Error) Error() string {
	s := e.Location.String() + ": " + e.Err.Error()
	if e.Hint != "" {
		s += "; hint: " + e.Hint
	}
	return s
}

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// Warning is something odd about a file that did not keep it from being read.
type Warning struct {
	Location
	Text string
}

// String returns place and text in one line.
func (w Warning) String() string { return w.Location.String() + ": " + w.Text }

// unknownKind marks a blob whose kind was never learned.
const unknownKind = ^BlobKind(0)

// kindError pairs a sentinel with a message of its own, so that messages need
// not repeat the sentinel's words.
type kindError struct {
	kind error
	msg  string
	err  error
}

func (e *kindError) Error() string { return e.msg }

func (e *kindError) Is(target error) bool { return target == e.kind }

func (e *kindError) Unwrap() error { return e.err }

// errorf returns an error that is kind for errors.Is and reads as the format
// says. An error wrapped with %w stays reachable.
func errorf(kind error, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &kindError{kind: kind, msg: err.Error(), err: errors.Unwrap(err)}
}

// maxListed bounds how many errors or warnings of a kind are kept, so that a
// hostile file can't fill memory with complaints.
const maxListed = 100

// problems collects errors, in order, up to a bound.
type problems struct {
	errs []error
	more int
}

func (p *problems) add(loc Location, hint string, err error) {
	if len(p.errs) == maxListed {
		p.more++
		return
	}
	p.errs = append(p.errs, &Error{Location: loc, Err: err, Hint: hint})
}

func (p *problems) err() error {
	switch {
	case p.more > 0:
		return errors.Join(append(p.errs, fmt.Errorf("and %d more", p.more))...)
	case len(p.errs) == 1:
		return p.errs[0]
	}
	return errors.Join(p.errs...)
}

// warnings collects warnings, in order, up to a bound.
type warnings struct {
	list []Warning
	more int
}

func (w *warnings) add(loc Location, format string, args ...any) {
	if len(w.list) == maxListed {
		w.more++
		return
	}
	w.list = append(w.list, Warning{Location: loc, Text: fmt.Sprintf(format, args...)})
}

func (w *warnings) join(v warnings) {
	for _, x := range v.list {
		if len(w.list) == maxListed {
			w.more++
			continue
		}
		w.list = append(w.list, x)
	}
	w.more += v.more
}

func (w *warnings) all() []Warning {
	if w.more == 0 {
		return w.list
	}
	loc := Location{File: w.list[len(w.list)-1].File, Blob: -1}
	return append(w.list[:len(w.list):len(w.list)],
		Warning{Location: loc, Text: fmt.Sprintf("and %d more warnings", w.more)})
}

// shorten cuts a name that would drown a message.
func shorten(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
