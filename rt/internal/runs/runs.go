// Package runs has what is known of the runs of a batch of samples, for those who follow them.
package runs

import (
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
)

// Record is what is known of the runs of a batch that somebody follows, or of samples that a call shares with nobody.
type Record struct {
	Observer rt.RunObserver // nil: those who followed it have left
	Came     time.Time      // when its first sample came
	riders   []rider
	marks    []any // of the riders of one run
	runs     []run
}

// rider is a part of a call in a batch.
type rider struct {
	mark    any
	from, n int
}

// run is a run and its first sample.
type run struct {
	rt.Run
	from int
}

func (r *run) overlaps(from, n int) bool { return from < r.from+r.Samples && r.from < from+n }

// Ride notes that n samples from one on are those of a call with that mark.
func (r *Record) Ride(mark any, from, n int) { r.riders = append(r.riders, rider{mark, from, n}) }

// Ran notes a run, which has just ended, of samples from one on.
func (r *Record) Ran(replica, from, samples, size int, begun time.Time, err error) {
	r.runs = append(r.runs, run{rt.Run{Replica: replica, Size: size, Samples: samples, Came: r.Came, Begun: begun, Ended: time.Now(), Err: err}, from})
}

// Observe has the observer learn of the runs, which count numbers, and returns how it panicked.
func (r *Record) Observe(count *atomic.Uint64) (err error) {
	if r.Observer == nil {
		return nil
	}
	defer ipu.Guard(&err)
	for i := range r.runs {
		run := &r.runs[i]
		run.ID = count.Add(1)
		for k := range r.riders {
			if p := &r.riders[k]; run.overlaps(p.from, p.n) {
				run.Calls++
				if p.mark != nil {
					r.marks = append(r.marks, p.mark)
				}
			}
		}
		run.Mark = r.Observer.ObserveRun(run.Run, r.marks)
		clear(r.marks)
		r.marks = r.marks[:0]
	}
	return nil
}

// Tell has a follower learn of the runs that computed some of n samples from one on, and returns how it panicked.
func (r *Record) Tell(to rt.RunFollower, from, n int) (err error) {
	defer ipu.Guard(&err)
	for i := range r.runs {
		if r.runs[i].overlaps(from, n) {
			to.Ran(r.runs[i].Run)
		}
	}
	return nil
}

// Clear makes r the record of nothing.
func (r *Record) Clear() {
	clear(r.riders)
	clear(r.marks)
	clear(r.runs)
	r.Observer, r.riders, r.marks, r.runs = nil, r.riders[:0], r.marks[:0], r.runs[:0]
}

// Ask asks a follower who learns of the runs of its call, and returns how it panicked.
func Ask(f rt.RunFollower) (o rt.RunObserver, mark any, err error) {
	defer ipu.Guard(&err)
	o, mark = f.Follow()
	return o, mark, nil
}
