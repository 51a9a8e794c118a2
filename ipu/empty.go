package ipu

// Empty is a Stream without a host's side: an input may get anything, an output is dropped. An engine that knows of it
// need not call it.
type Empty interface {
	Stream
	// Empty does nothing; it tells such streams from others.
	Empty()
}
