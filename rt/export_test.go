package rt

import "time"

// Waiting returns how many turns are in a session's queue.
func Waiting(s *Session) int {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	n := 0
	for t := s.gate.head; t != nil; t = t.next {
		n++
	}
	if n != int(s.gate.length.Load()) || n != s.gate.callers+s.gate.guests+s.gate.slots+s.gate.stayers() {
		panic("the list of those that wait is counted wrongly")
	}
	return n
}

// Prepare gives a generated stream its size, as Open does.
func Prepare(s bound, anchor string, size, transfers int) {
	w, _ := s.describe()
	w.anchor, w.at.Size, w.at.Count = anchor, size, transfers
}

// Describe returns the distribution of durations.
func Describe(all ...time.Duration) Distribution {
	var h histogram
	for _, d := range all {
		h.add(int64(d))
	}
	return h.snapshot()
}

// Gathered returns how many samples wait for a batch to be full.
func Gathered(c *Core) int {
	c.batcher.mu.Lock()
	defer c.batcher.mu.Unlock()
	n := 0
	for _, o := range c.batcher.open {
		if o != nil {
			n += o.count
		}
	}
	return n
}

// Scatter puts the samples that lie in data into a run's memory, from sample at
// on.
func Scatter(blocks, batch, part, at int, data []byte, iterations int) []byte {
	t := batchTensor{blocks: blocks, batch: batch, part: part}
	mem := make([]byte, blocks*batch*part*iterations)
	t.each(at, len(data)/(blocks*part), func(m, s int) { copy(mem[m:][:part], data[s:]) })
	return mem
}

// What makes loggers, for tests.
var (
	NewLogger  = newLogger
	NewHandler = newHandler
)

// stayers counts the guests that no bound keeps out.
func (g *gate) stayers() int {
	n := 0
	for t := g.head; t != nil; t = t.next {
		if t.kind > guest {
			n++
		}
	}
	return n
}

// WaitForRoom returns how many callers wait for a place in the queue.
func WaitForRoom(c *Core) int {
	c.queue.mu.Lock()
	defer c.queue.mu.Unlock()
	return c.queue.waiting
}

// Draining reports whether a session lets nobody in any more. It is the last to
// do so of all that a runner's Shutdown begins with.
func Draining(s *Session) bool { return s.gate.state.Load()&draining != 0 }

// Indirect makes a runner copy whole batches, as it does where the samples of a
// run do not lie behind each other.
func Indirect(c *Core) { c.batcher.direct = false }
