package main

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// parts is in how many parts the requests of a round are made: so often servers take turns in it. Whatever else a machine does lasts longer than a
// part, and meets all servers of the round.
const parts = 40

// contestant is a server that takes turns with others.
type contestant struct {
	*process
	load  *load
	extra func() error // what is asked for besides, once in each round; nil: nothing
}

// enter starts a server, checks its answer and has clients connect to it.
func enter(name string, q *request, clients int) (*contestant, error) {
	p, err := start(name)
	if err != nil {
		return nil, err
	}
	c := &contestant{process: p}
	if err = check(p.addr, q); err == nil {
		c.load, err = connect(p.addr, q, clients)
	}
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("server %s: %w", name, err)
	}
	return c, nil
}

// leave ends the server. c may be nil.
func (c *contestant) leave() {
	if c != nil {
		c.load.close()
		c.stop()
	}
}

// cost is what a request cost a server in one round.
type cost struct {
	cpu, mallocs, bytes float64 // microseconds, and by request
	rate                float64 // requests a second, in the middle one of its turns
}

// compete has servers take turns, and returns by server and round what each of n requests cost.
func compete(all []*contestant, rounds, n int) ([][]cost, error) {
	costs := make([][]cost, len(all))
	for round := -1; round < rounds; round++ { // the first one warms up
		before, err := usedBy(all)
		if err != nil {
			return nil, err
		}
		cpu, walls, made := make([]time.Duration, len(all)), make([][]float64, len(all)), 0
		for part := range parts {
			each := max(n/parts, len(all[0].load.ask))
			made += each
			for k := range all {
				i := k
				if part%2 == 1 { // none comes always after the same one
					i = len(all) - 1 - k
				}
				begin, err := all[i].clock()
				if err != nil {
					return nil, err
				}
				if extra := all[i].extra; part == 0 && extra != nil {
					if err := extra(); err != nil {
						return nil, err
					}
				}
				wall, err := all[i].load.make(each)
				if err != nil {
					return nil, err
				}
				end, err := all[i].clock()
				if err != nil {
					return nil, err
				}
				cpu[i] += time.Duration(end - begin)
				walls[i] = append(walls[i], wall.Seconds())
			}
		}
		after, err := usedBy(all)
		if err != nil {
			return nil, err
		}
		for i := range all {
			costs[i] = append(costs[i], cost{
				cpu:     float64(cpu[i]) / 1e3 / float64(made),
				mallocs: float64(after[i].Mallocs-before[i].Mallocs) / float64(made),
				bytes:   float64(after[i].Bytes-before[i].Bytes) / float64(made),
				rate:    float64(made) / parts / median(walls[i]),
			})
		}
	}
	for i := range costs {
		costs[i] = costs[i][1:]
	}
	return costs, nil
}

// clock returns the nanoseconds of processor time that the process has used so far.
func (p *process) clock() (int64, error) {
	const whole = 2 // all threads of the process, as the scheduler counts: CPUCLOCK_SCHED
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^p.cmd.Process.Pid<<3|whole), &t); err != nil {
		return 0, fmt.Errorf("the processor time of a server: %w", err)
	}
	return t.Nano(), nil
}

func usedBy(all []*contestant) (u []usage, err error) {
	for _, c := range all {
		one, err := c.used()
		if err != nil {
			return nil, err
		}
		u = append(u, one)
	}
	return u, nil
}

// median returns the middle of some values, of an even number the mean of the two there.
func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	n := len(v) / 2
	if len(v)%2 == 1 {
		return v[n]
	}
	return (v[n-1] + v[n]) / 2
}

// ratio returns the median over the rounds of a's part of b.
func ratio(a, b []float64) float64 {
	r := make([]float64, len(a))
	for i := range r {
		r[i] = a[i] / b[i]
	}
	return median(r)
}

// figures returns one figure of each round.
func figures[T any](rounds []T, figure func(*T) float64) []float64 {
	v := make([]float64, len(rounds))
	for i := range rounds {
		v[i] = figure(&rounds[i])
	}
	return v
}

func processorTime(c *cost) float64 { return c.cpu }
func mallocs(c *cost) float64       { return c.mallocs }
func allocated(c *cost) float64     { return c.bytes }
func rate(c *cost) float64          { return c.rate }

func verdict(met bool) string {
	if met {
		return "met"
	}
	return "missed"
}
