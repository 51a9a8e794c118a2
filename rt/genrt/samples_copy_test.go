package genrt

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/line"
	"github.com/popefgen/popefgen/rt/internal/session"
)

// lateGuest joins the open batch of a runner with n samples and takes its time to
// copy them.
type lateGuest struct {
	b *batcher
	c *call
}

func joinLate(b *batcher, n int) lateGuest {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := lateGuest{b, b.newCall()}
	b.join(g.c, rt.LeastBusy, 0, n)
	return g
}

// arrive ends the copying, and gives the results up.
func (g lateGuest) arrive() {
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	g.b.arrived(g.c)
}

// bareBatcher returns a batcher for groups of four, whose engine nobody holds.
func bareBatcher(t *testing.T, policy rt.BatchPolicy) *batcher {
	t.Helper()
	c := &Core{done: make(chan struct{}), replicas: []*replica{{session: &session.Session{}}}}
	g := &c.replicas[0].session.Gate
	g.Grant, g.MaxWaiting = make(chan int, 1), -1
	c.batcher.most = -1
	spec := &Spec{Iterations: 2, Batch: 2, Anchors: []AnchorSpec{
		{Name: "x", Role: RunInput, Bytes: 8, Blocks: 1}, {Name: "y", Role: RunOutput, Bytes: 8, Blocks: 1},
	}}
	require.NoError(t, c.batcher.init(c, spec, policy, budget.New(0)))
	require.NoError(t, c.batcher.provide())
	return &c.batcher
}

// TestBatchWaitsForCopies has samples that have a place in a batch before they are
// copied: it does not run without them, and as soon as they are there.
func TestBatchWaitsForCopies(t *testing.T) {
	for name, policy := range map[string]rt.BatchPolicy{
		"full": {Linger: rt.Forever},
		"late": {Linger: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := bareBatcher(t, policy)
				b.mu.Lock()
				leads := b.newCall()
				b.join(leads, rt.LeastBusy, 0, 1)
				b.arrived(leads)
				b.mu.Unlock()
				first := joinLate(b, 1)
				n := 1
				if name == "full" {
					n = 2
				}
				second := joinLate(b, n)
				o := leads.parts[0].batch
				var all sync.WaitGroup
				ready := make(chan *batch, 1)
				all.Go(func() { // attend, without the run
					for {
						b.mu.Lock()
						o, wait, forever := b.look(leads)
						b.mu.Unlock()
						if o != nil {
							ready <- o
							return
						}
						if b.await(t.Context(), leads, wait, forever) != nil {
							return
						}
					}
				})
				time.Sleep(time.Second)
				leads.signal() // for nothing
				synctest.Wait()
				require.Empty(t, ready, "two are copying")
				first.arrive()
				synctest.Wait()
				require.Empty(t, ready, "one is copying")
				second.arrive()
				synctest.Wait()
				require.Len(t, ready, 1)
				require.Same(t, o, <-ready)
				all.Wait()
			})
		})
	}
}

// TestBatchRunsWithCopies has somebody join a batch that waits for the engine
// already.
func TestBatchRunsWithCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bareBatcher(t, rt.BatchPolicy{})
		g := &b.core.replicas[0].session.Gate
		require.True(t, g.Take(line.Held))
		b.mu.Lock()
		leads := b.newCall()
		b.join(leads, rt.LeastBusy, 0, 1)
		b.arrived(leads)
		o := leads.parts[0].batch
		b.mu.Unlock()
		ran := make(chan error, 1)
		go func() { ran <- b.run(t.Context(), leads, o) }()
		synctest.Wait()
		guest := joinLate(b, 1)
		g.Release(0)
		synctest.Wait()
		require.Empty(t, ran, "one is copying")
		require.Nil(t, b.open[0], "nobody joins any more")
		guest.arrive()
		require.NoError(t, <-ran)
		require.ErrorIs(t, o.err, rt.ErrUnbound, "there is no engine, but it came to that")
	})
}

// TestBatchLayouts says of which layouts a run's memory can be the caller's.
func TestBatchLayouts(t *testing.T) {
	for _, c := range []struct {
		blocks [2]int
		frozen bool
		direct bool
	}{{[2]int{1, 1}, false, true}, {[2]int{2, 1}, false, false}, {[2]int{1, 2}, false, false}, {[2]int{2, 1}, true, true}, {[2]int{2, 2}, true, false}} {
		core := &Core{replicas: []*replica{{}}, frozen: []bool{c.frozen}}
		spec := &Spec{Iterations: 1, Batch: 2, Anchors: []AnchorSpec{
			{Name: "y", Role: RunOutput, Bytes: 8, Blocks: c.blocks[1]}, {Name: "x", Role: RunInput, Bytes: 8, Blocks: c.blocks[0]},
		}}
		require.NoError(t, core.batcher.init(core, spec, rt.BatchPolicy{}, budget.New(0)))
		require.Equal(t, c.direct, core.batcher.direct, "%+v", c)
		spec.Anchors[0].Bytes = 9
		require.ErrorIs(t, core.batcher.init(core, spec, rt.BatchPolicy{}, budget.New(0)), rt.ErrGenerated)
	}
}

// scatter puts the samples that lie in data into a run's memory, from sample at
// on.
func scatter(blocks, batch, part, at int, data []byte, iterations int) []byte {
	t := batchTensor{blocks: blocks, batch: batch, part: part}
	mem := make([]byte, blocks*batch*part*iterations)
	t.each(at, len(data)/(blocks*part), func(m, s int) { copy(mem[m:][:part], data[s:]) })
	return mem
}

// TestSamplesFarApart copies samples with parts far apart, against a plain
// transposition.
func TestSamplesFarApart(t *testing.T) {
	const blocks, batch, part, iterations = 3, 4, 2, 2
	mem := scatter(blocks, batch, part, 3, []byte("abcdefghijklmnopqr"), iterations)
	want := make([]byte, blocks*batch*part*iterations)
	samples := []string{"abcdef", "ghijkl", "mnopqr"}
	for i, s := range samples { // samples 3, 4 and 5: the last of the first transfer, the first two of the next
		at := 3 + i
		for j := range blocks {
			copy(want[at/batch*blocks*batch*part+j*batch*part+at%batch*part:], s[j*part:(j+1)*part])
		}
	}
	require.Equal(t, want, mem)
}
