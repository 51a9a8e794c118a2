// Package popef reads and writes PopEF files, the exchange format in which a
// compiled model travels from a framework to whatever runs it.
//
// A file is a plain sequence of blobs: executables, metadata, tensor data, feed
// data and opaque attachments. A [Reader] takes one file or several, checks
// them, and links their blobs into models: a [Model] is one metadata blob, the
// executable it names, the tensors and feeds whose names its anchors share, and
// the opaque blobs of that executable. [Load] does it in one step for the usual
// case of one model.
//
// Opening a file costs its structure, not its data: payloads stay where they
// are until somebody asks for one, and are then views of the mapped file where
// the platform can map it.
//
// A [Writer] streams blobs to a file or any other io.WriteSeeker; [WriteFile]
// leaves either the whole file or none.
//
// How each open question of the format is settled is written down in
// docs/popef.md.
package popef
