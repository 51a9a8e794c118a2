package popef

import (
	"context"
	"fmt"
	"slices"
)

// linked is the result of linking all blobs of a Reader.
type linked struct {
	models []*Model
	warn   warnings
	err    error
}

// linker works out which blobs make up which model.
type linker struct {
	linked
	problems
	ctx     context.Context
	r       *Reader
	execs   map[string]*Blob
	tensors map[string]*Blob
	feeds   map[string]*Blob
	used    map[*Blob]bool
}

// link links the blobs of a Reader. If ctx is done before, what it returns is
// not whole.
func link(ctx context.Context, r *Reader) *linked {
	l := &linker{
		ctx:   ctx,
		r:     r,
		execs: map[string]*Blob{}, tensors: map[string]*Blob{}, feeds: map[string]*Blob{},
		used: map[*Blob]bool{},
	}
	l.index()
	described := map[string]*Blob{}
	for _, b := range r.blobs {
		if b.Kind != MetadataBlob {
			continue
		}
		if first, ok := described[b.Executable]; ok {
			l.problem(b, errorf(ErrDuplicateMetadata, "executable %q already has the metadata at %s", shorten(b.Executable), first.seenFrom(b)),
				"give the files of one model once")
			continue
		}
		described[b.Executable] = b
		l.model(b)
	}
	l.attachOpaques()
	for _, m := range l.models {
		l.join(m)
	}
	l.unused()
	l.finish()
	return &l.linked
}

func (l *linker) problem(b *Blob, err error, hint string) {
	l.problems.add(b.Location(), hint, err)
}

// index sorts executables and data by name; of several data blobs of one name
// the first wins.
func (l *linker) index() {
	for i, b := range l.r.blobs {
		if i%1024 == 0 && l.ctx.Err() != nil {
			return
		}
		switch b.Kind {
		case ExecutableBlob:
			switch first, ok := l.execs[b.Name]; {
			case b.Name == "":
				l.problem(b, errorf(ErrExecutableName, "executable has no name"), "")
			case ok:
				l.problem(b, errorf(ErrExecutableName, "there is one already at %s", first.seenFrom(b)),
					"give each file once")
			default:
				l.execs[b.Name] = b
			}
		case TensorBlob:
			l.data(l.tensors, b)
		case FeedBlob:
			l.data(l.feeds, b)
		}
	}
}

func (l *linker) data(byName map[string]*Blob, b *Blob) {
	if first, ok := byName[b.Name]; ok {
		l.warn.add(b.Location(), "ignored: %v of that name is already at %v", b.Kind, first.Location())
		l.used[b] = true // one warning is enough
		return
	}
	byName[b.Name] = b
}

// model links the model that a metadata blob describes.
func (l *linker) model(meta *Blob) {
	exe, ok := l.execs[meta.Executable]
	if !ok {
		l.problem(meta, errorf(ErrMissingExecutable, "its executable %q is in none of the files (%d executables found)", shorten(meta.Executable), len(l.execs)),
			"add the file that holds the executable")
		return
	}
	l.used[exe] = true
	m := &Model{
		Metadata: *meta.Metadata, metadata: meta, executable: exe,
		byName: map[string]*Blob{}, values: map[string]int64{}, feedByName: map[string]*Feed{},
		limits: l.r.limits,
	}
	for i := range m.Metadata.Anchors {
		if i%1024 == 0 && l.ctx.Err() != nil {
			return
		}
		if a := &m.Metadata.Anchors[i]; a.Type.TakesData() {
			l.anchor(m, meta, a)
		}
	}
	// In the order of the files, not of the anchors.
	slices.SortFunc(m.tensors, func(a, b *Blob) int { return a.order - b.order })
	slices.SortFunc(m.feeds, func(a, b *Feed) int { return a.Blob.order - b.Blob.order })
	l.models = append(l.models, m)
}

// anchor gives an anchor its data, if there is any.
func (l *linker) anchor(m *Model, meta *Blob, a *Anchor) {
	tensor, feed := l.tensors[a.Name], l.feeds[a.Name]
	b := tensor
	switch {
	case tensor == nil && feed == nil:
		return
	case tensor != nil && feed != nil:
		l.used[tensor], l.used[feed] = true, true
		l.problem(feed, errorf(ErrAmbiguousData, "its anchor has tensor data too, at %s", tensor.seenFrom(feed)),
			"remove one of them")
		return
	case tensor == nil:
		b = feed
	}
	l.used[b] = true
	if !b.Info.Equal(a.Info) {
		l.problem(b, errorf(ErrMismatch, "data is %v, its anchor (metadata at %s) is %v", b.Info, meta.seenFrom(b), a.Info),
			"the data is of another version of the model; export both together")
		return
	}
	size, err := b.Info.SizeInBytes()
	if err != nil {
		l.problem(b, errorf(ErrMismatch, "data can't be used: %w", err), "")
		return
	}
	want, err := b.expected()
	if err != nil {
		l.problem(b, errorf(ErrShortData, "data can't be used: %w", err), "")
		return
	}
	if b.PayloadSize < want {
		l.problem(b, errorf(ErrShortData, "%d bytes of data, %s needs %d", b.PayloadSize, describe(b), want),
			"the file is incomplete; write it again")
		return
	}
	if b.Kind == TensorBlob && a.RemoteBuffer && a.Repeats > 1 && size > 0 && b.PayloadSize/size >= int64(a.Repeats) {
		want = size * int64(a.Repeats)
	}
	if m.byName[a.Name] != nil {
		return // an input anchor of the same name and type has taken it
	}
	if b.PayloadSize > want {
		l.warn.add(b.Location(), "%d bytes of data, %s needs %d; the rest is ignored", b.PayloadSize, describe(b), want)
	}
	m.byName[a.Name] = b
	if b.Kind == FeedBlob {
		f := &Feed{Blob: b, size: size}
		m.feedByName[a.Name] = f
		m.feeds = append(m.feeds, f)
	} else {
		m.values[a.Name] = want
		m.tensors = append(m.tensors, b)
	}
}

// describe names what a data blob holds: "F32 [10]" or "3 × F32 [10]".
func describe(b *Blob) string {
	if b.Kind == FeedBlob {
		return fmt.Sprintf("%d × %v", b.NumTensors, b.Info)
	}
	return b.Info.String()
}

// attachOpaques gives each opaque blob to the model of the executable it names.
func (l *linker) attachOpaques() {
	byExe := map[string]*Model{}
	for _, m := range l.models {
		byExe[m.Metadata.Executable] = m
	}
	for _, b := range l.r.blobs {
		if b.Kind != OpaqueBlob {
			continue
		}
		if m, ok := byExe[b.Executable]; ok {
			m.opaques = append(m.opaques, b)
			l.used[b] = true
		}
	}
}

// unused warns of blobs that belong to no model.
func (l *linker) unused() {
	for _, b := range l.r.blobs {
		if l.used[b] {
			continue
		}
		switch b.Kind {
		case ExecutableBlob:
			l.warn.add(b.Location(), "no metadata describes it")
		case TensorBlob, FeedBlob:
			l.warn.add(b.Location(), "no input anchor of that name takes it")
		case OpaqueBlob:
			l.warn.add(b.Location(), "it belongs to the executable %q, of which there is no model", shorten(b.Executable))
		}
	}
}

// finish sets what all models share, and drops them all if anything is wrong.
func (l *linker) finish() {
	if l.linked.err = l.problems.err(); l.linked.err != nil {
		l.models = nil
		return
	}
	var files []string
	for _, s := range l.r.sources {
		files = append(files, s.name)
	}
	w := l.r.warn
	w.list = w.list[:len(w.list):len(w.list)]
	w.join(l.warn)
	all := w.all()
	for _, m := range l.models {
		m.files, m.warn = files, all
	}
}
