package rt_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
)

// observed is what an observer learns of a run.
type observed struct {
	Run   rt.Run
	Marks []any
}

// runs observes runs, and marks each with its number.
type runs struct {
	seen  []observed
	panic bool
}

func (o *runs) ObserveRun(r rt.Run, marks []any) any {
	o.seen = append(o.seen, observed{r, append([]any(nil), marks...)})
	if o.panic {
		panic("observer")
	}
	return r.ID
}

// follower follows one call.
type follower struct {
	observer rt.RunObserver
	mark     any
	seen     []rt.Run
	panic    string
}

func (f *follower) Follow() (rt.RunObserver, any) {
	if f.panic == "Follow" {
		panic(f.panic)
	}
	return f.observer, f.mark
}

func (f *follower) Ran(r rt.Run) {
	f.seen = append(f.seen, r)
	if f.panic == "Ran" {
		panic(f.panic)
	}
}

// in returns a context with the follower.
func (f *follower) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, rt.RunFollowerKey{}, f)
}

// TestFollow has calls share runs: their observer learns of each run once, with its times to the moment, and each call
// which of them computed its samples.
func TestFollow(t *testing.T) {
	const ms = time.Millisecond
	for _, submitted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := openGated(t, rt.WithBatching(rt.BatchPolicy{Linger: 10 * ms}))
			begun := time.Now()
			at := func(after time.Duration) time.Time { return begun.Add(after) }
			o := &runs{}
			one, two, left := &follower{observer: o, mark: "one"}, &follower{observer: o, mark: "two"}, &follower{observer: o, mark: "left"}
			call := func(ctx context.Context, n int) <-chan error {
				if !submitted {
					return g.samples(ctx, n, results(n))
				}
				x, _ := someSamples(1, n)
				ticket, err := g.SubmitSamples(ctx, x, results(n))
				require.NoError(t, err)
				result := make(chan error, 1)
				go func() { result <- ticket.Wait(context.Background()) }()
				synctest.Wait()
				return result
			}
			leaves, leave := context.WithCancel(left.in(t.Context()))
			defer leave()
			gone := call(leaves, 1)
			time.Sleep(ms)
			first := call(one.in(t.Context()), 1)
			time.Sleep(ms)
			unknown := call(t.Context(), 1)
			leave()
			require.ErrorIs(t, <-gone, context.Canceled)
			second := call(two.in(t.Context()), 2) // one of which begins another batch
			<-g.started
			time.Sleep(3 * ms)
			g.proceed <- nil
			require.NoError(t, <-first)
			require.NoError(t, <-unknown)
			<-g.started
			time.Sleep(ms)
			g.proceed <- nil
			require.NoError(t, <-second)

			// The first batch was full at 2 ms; the second one waited until 12 ms.
			full := rt.Run{ID: 1, Size: 4, Samples: 4, Calls: 3, Came: at(0), Begun: at(2 * ms), Ended: at(5 * ms)}
			rest := rt.Run{ID: 2, Size: 4, Samples: 1, Calls: 1, Came: at(2 * ms), Begun: at(12 * ms), Ended: at(13 * ms)}
			exact := cmpopts.EquateApproxTime(0)
			require.Empty(t, cmp.Diff([]observed{{full, []any{"one", "two"}}, {rest, []any{"two"}}}, o.seen, exact))
			require.Equal(t, []int{0, 3}, []int{full.Padding(), rest.Padding()})
			full.Mark, rest.Mark = uint64(1), uint64(2)
			require.Empty(t, cmp.Diff([]rt.Run{full}, one.seen, exact))
			require.Empty(t, cmp.Diff([]rt.Run{full, rest}, two.seen, exact))
			require.Empty(t, left.seen)
		})
	}
}

// TestFollowAlone follows a call of whole batches, which shares them with nobody, one that has nobody learn of its runs, and runs that fail.
func TestFollowAlone(t *testing.T) {
	for _, indirect := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := openGated(t)
			if indirect {
				copyBatches(&g.core)
			}
			o := &runs{}
			f := &follower{observer: o}
			done := g.samples(f.in(t.Context()), 2*group+1, results(2*group+1))
			for range 3 {
				<-g.started
				g.proceed <- nil
			}
			require.NoError(t, <-done)
			ignore := cmpopts.IgnoreFields(rt.Run{}, "Came", "Begun", "Ended")
			want := []observed{{Run: rt.Run{ID: 1, Size: 4, Samples: 4, Calls: 1}}, {Run: rt.Run{ID: 2, Size: 4, Samples: 4, Calls: 1}}, {Run: rt.Run{ID: 3, Size: 4, Samples: 1, Calls: 1}}}
			require.Empty(t, cmp.Diff(want, o.seen, ignore))
			require.Len(t, f.seen, 3)

			nobody := &follower{}
			done = g.samples(nobody.in(t.Context()), 1, results(1))
			<-g.started
			g.proceed <- nil
			require.NoError(t, <-done)
			require.Empty(t, nobody.seen)

			failure := errors.New("no")
			for _, n := range []int{1, group} {
				done = g.samples(f.in(t.Context()), n, results(n))
				<-g.started
				g.proceed <- failure
				require.ErrorIs(t, <-done, failure)
				require.ErrorIs(t, o.seen[len(o.seen)-1].Run.Err, failure)
				require.ErrorIs(t, f.seen[len(f.seen)-1].Err, failure)
			}
			require.Len(t, o.seen, 5)
			require.Len(t, f.seen, 5)
		})
	}
}

// TestFollowPanics: what panics costs the calls that met it, and the runner goes on.
func TestFollowPanics(t *testing.T) {
	for _, n := range []int{1, group} {
		for name, f := range map[string]*follower{
			"Follow":     {observer: &runs{}, panic: "Follow"},
			"Ran":        {observer: &runs{}, panic: "Ran"},
			"ObserveRun": {observer: &runs{panic: true}},
		} {
			synctest.Test(t, func(t *testing.T) {
				g := openGated(t)
				done := g.samples(f.in(t.Context()), n, results(n))
				if name != "Follow" {
					<-g.started
					g.proceed <- nil
				}
				err := <-done
				require.ErrorIs(t, err, rt.ErrPanic, name)
				done = g.samples(t.Context(), n, results(n))
				<-g.started
				g.proceed <- nil
				require.NoError(t, <-done)
			})
		}
	}
}

// still is an observer and a follower that keeps nothing.
type still struct{ told int }

func (s *still) Follow() (rt.RunObserver, any) { return s, s }
func (s *still) Ran(r rt.Run)                  { s.told++ }
func (s *still) ObserveRun(rt.Run, []any) any  { return nil }
