package ipu

import "context"

// Preparer is an [Engine] that looks up only once what is the same in every
// run of a program.
type Preparer interface {
	Engine
	// Prepare returns the program with the given index, [ErrUnknownProgram]
	// if there is none. It may be called before Load, and what it returns is
	// of use until Close, however often the engine is loaded.
	Prepare(program int) (Prepared, error)
}

// Prepared is one program of an engine. It is for a host that has a guard of
// its own around all that drives the engine, so that a second one in the engine
// would only cost time.
type Prepared interface {
	// Run does what [Engine.Run] does, but the caller sees to it that nothing
	// else drives the engine meanwhile, and that ctx had not ended a moment
	// ago. It does not panic: a panic of a stream or a kernel is an error.
	Run(ctx context.Context) error
}

// Windowed is a Direct stream whose transfers are consecutive parts of one
// block of memory, which the host exchanges between runs.
type Windowed interface {
	Direct
	// Window returns what the stream hands out; it is the same at every call.
	// An engine that computes on the host may call its Next and Complete in
	// place of the stream's Memory and Complete, as long as Next has memory.
	// One that copies may do so in the memory that is left when a run begins,
	// without Fetch and Prefetch, and call Complete when the run has ended. An
	// output without memory by then is dropped; for any other transfer without
	// memory it calls Fetch, to learn the error.
	Window() *Window
}

// Window hands out consecutive transfers of one block of host memory. What
// the memory is used for, and by whom, is agreed on by who has the stream.
type Window struct {
	Block []byte // all transfers; nil if there is no memory now
	Size  int    // bytes of one transfer, always the same
	Count int    // number of transfers in Block, always the same
	Done  int    // complete transfers
	Ahead int    // transfers that were copied ahead and are not complete
}

// Next returns the memory of the next transfer, nil if there is none.
func (w *Window) Next() []byte {
	i := w.Done + w.Ahead
	if w.Block == nil || i >= w.Count {
		return nil
	}
	from := i * w.Size
	return w.Block[from : from+w.Size : from+w.Size]
}

// Complete ends the oldest transfer.
func (w *Window) Complete() {
	if w.Done < w.Count {
		w.Done++
	}
	if w.Ahead > 0 {
		w.Ahead--
	}
}
