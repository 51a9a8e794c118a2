package rt

import "time"

// RunFollowerKey is the key under which the context of RunSamples or SubmitSamples has a [RunFollower].
//
//	ctx = context.WithValue(ctx, rt.RunFollowerKey{}, follower)
type RunFollowerKey struct{}

// RunFollower learns which runs computed the samples of one call of RunSamples or SubmitSamples: the value of its
// context under [RunFollowerKey]. Its methods are called while the call is under way: before RunSamples returns,
// or the ticket of SubmitSamples is done. If one panics the call fails with [ErrPanic].
type RunFollower interface {
	// Follow is called once the call was let in, before its samples wait. It returns who learns of the runs, nil for nobody,
	// and what that one will know the call by, which may be nil.
	Follow() (o RunObserver, mark any)
	// Ran is called for every run that ended while the call waited for it and computed samples of it, in the order of runs.
	Ran(r Run)
}

// RunObserver learns of runs that compute the samples of calls with a [RunFollower].
type RunObserver interface {
	// ObserveRun is called once for every run, after it, in the goroutine of one of the calls that share it, and before any
	// of them learns of it. If followers of several observers share a run, that of the call that came first is called. marks
	// are those of the calls, without what is nil, and valid until ObserveRun returns. What it returns is the Mark of the run
	// that followers get. It may be called from several goroutines at the same time. If it panics, the calls
	// that share the run fail with [ErrPanic].
	ObserveRun(r Run, marks []any) (mark any)
}

// Run describes one run of a main program that computed samples, of one caller or of several.
type Run struct {
	ID      uint64    // its number among those of the runner that were followed, from 1
	Replica int       // that computed it
	Size    int       // samples that the program computes, padding among them
	Samples int       // samples of callers in it, at most Size; those of callers that have left since are among them
	Calls   int       // calls whose samples it computed, without those that had left before it began
	Came    time.Time // when the first sample of its batch came, since when it was waited for others and for an engine
	Begun   time.Time
	Ended   time.Time
	Err     error // why it failed; nil if it did not
	Mark    any   // what the observer returned; nil for the observer itself
}

// Padding returns how many samples the run computed for nobody.
func (r *Run) Padding() int { return r.Size - r.Samples }
