// Package workers is the engine's thread pool: a parallel-for over the parts of a
// task, whose workers spin, then park on a futex (spin-then-park), and one over rounds with
// a barrier between them ([Pool.RunRounds]). It knows of engines nothing but what
// labels a profile should have.
package workers
