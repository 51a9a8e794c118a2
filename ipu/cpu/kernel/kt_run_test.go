package kernel

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/stretchr/testify/require"
)

// threads is a Pool that runs every part in a goroutine of its own.
type threads int

func (n threads) Workers() int { return int(n) }

func (n threads) Pays(int) bool { return true }

func (n threads) Ended() bool { return false }

func (n threads) Run(t Task, parts int) {
	var wg sync.WaitGroup
	for i := range parts {
		wg.Go(func() { t.Do(i) })
	}
	wg.Wait()
}

func (n threads) RunRounds(t RoundTask, rounds, items int) {
	for r := range rounds {
		var wg sync.WaitGroup
		for i := range int(n) {
			wg.Go(func() { t.DoRound(r, items*i/int(n), items*(i+1)/int(n)) })
		}
		wg.Wait()
	}
}

// runTests runs all tests of a package.
func runTests(m *testing.M) {
	grain = 64 // so that tensors of a few hundred elements are cut
	os.Exit(m.Run())
}

// bindFrom binds op by the first of the families that has its kind.
func bindFrom(families []map[string]binder, op graph.Op, in, out []graph.TensorType) (Kernel, error) {
	for _, family := range families {
		if bind := family[op.Kind()]; bind != nil {
			return bind(op, in, out)
		}
	}
	return nil, fmt.Errorf("no family has a kernel of operator %s", op.Kind())
}

// fataler is *testing.T or *rapid.T.
type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

// runWith computes op, bound by bind, in one thread, in several, and in place where that is
// allowed, and fails if the results differ.
func runWith(t fataler, bind binder, op graph.Op, in []graph.TensorType, data [][]byte) ([]graph.TensorType, [][]byte) {
	t.Helper()
	out, err := op.Infer(in)
	if err != nil {
		t.Fatalf("%s %+v of %v: %v", op.Kind(), op, in, err)
	}
	k, err := bind(op, in, out)
	if err != nil {
		t.Fatalf("%v: %v", in, err)
	}
	scratch := aligned(k.Scratch())
	compute := func(p Pool, data [][]byte, inPlace int) [][]byte {
		for i := range scratch {
			scratch[i] = 0xa5
		}
		results := make([][]byte, len(out))
		for i, o := range out {
			results[i] = aligned(elements(o.Shape) * o.DType.Size())
			for j := range results[i] {
				results[i][j] = 0x5a
			}
		}
		if inPlace >= 0 {
			data = slices.Clone(data)
			copy(results[0], data[inPlace])
			data[inPlace] = results[0]
		}
		if err := k.Run(p, data, results, scratch); err != nil {
			t.Fatalf("%s %+v of %v: %v", op.Kind(), op, in, err)
		}
		return results
	}
	want := compute(Serial{}, data, -1)
	same := func(how string, got [][]byte) {
		t.Helper()
		for i := range want {
			if !slices.Equal(want[i], got[i]) {
				t.Fatalf("%s %+v of %v: %s gives other results", op.Kind(), op, in, how)
			}
		}
	}
	same("another run", compute(Serial{}, data, -1))
	same("a pool of 4", compute(threads(4), data, -1))
	if p, ok := k.(InPlacer); ok {
		for i := range in {
			if p.InPlace(i) {
				same(fmt.Sprintf("in place of operand %d", i), compute(threads(3), data, i))
			}
		}
	}
	return out, want
}

// inTurn is a Pool that pretends to have several workers without making
// goroutines, which would be counted as allocations.
type inTurn int

func (n inTurn) Workers() int { return int(n) }

func (n inTurn) Pays(int) bool { return true }

func (n inTurn) Ended() bool { return false }

func (n inTurn) Run(t Task, parts int) { Serial{}.Run(t, parts) }

func (n inTurn) RunRounds(t RoundTask, rounds, items int) { Serial{}.RunRounds(t, rounds, items) }

// benchmarkWith measures op, bound by bind, on one thread.
func benchmarkWith(b *testing.B, bind binder, name string, op graph.Op, in ...graph.TensorType) {
	b.Run(fmt.Sprintf("%s/%v", name, in), func(b *testing.B) {
		out, err := op.Infer(in)
		require.NoError(b, err)
		k, err := bind(op, in, out)
		require.NoError(b, err)
		var data [][]byte
		for i, tt := range in {
			elems := make([]elem, elements(tt.Shape))
			for j := range elems {
				x := j * 7919 % 1001
				elems[j] = elem{f: float64(x-500) / 50, i: int64(x * i % 50)}
			}
			data = append(data, store(tt.DType, elems))
		}
		results := [][]byte{aligned(elements(out[0].Shape) * out[0].DType.Size())}
		scratch := aligned(k.Scratch())
		n := max(elements(in[0].Shape), elements(out[0].Shape))
		for b.Loop() {
			if err := k.Run(Serial{}, data, results, scratch); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/element")
	})
}

// runPackedWith is runWith, and fails if packing the operands that the kernel wants
// packed changes the results.
func runPackedWith(t fataler, bind binder, op graph.Op, in []graph.TensorType, data [][]byte) ([]graph.TensorType, [][]byte) {
	t.Helper()
	out, want := runWith(t, bind, op, in, data)
	k, err := bind(op, in, out)
	if err != nil {
		t.Fatalf("%v", err)
	}
	p, ok := k.(Packer)
	if !ok {
		return out, want
	}
	data = slices.Clone(data)
	for i := range in {
		if n := p.Packed(i); n > 0 && data[i] != nil {
			dst := aligned(n)
			p.Pack(i, dst, data[i])
			data[i] = dst
			p.UsePacked(i)
			if p.Packed(i) != n {
				t.Fatalf("operand %d takes %d bytes packed, %d before", i, p.Packed(i), n)
			}
		}
	}
	for _, pool := range []Pool{Serial{}, threads(5), threads(2), Serial{}} {
		var got [][]byte
		for _, o := range out {
			got = append(got, aligned(elements(o.Shape)*o.DType.Size()))
		}
		if err := k.Run(pool, data, got, aligned(k.Scratch())); err != nil {
			t.Fatalf("%v", err)
		}
		for i := range got {
			if !slices.Equal(got[i], want[i]) {
				t.Fatalf("%s %+v of %v: packed operands give other results", op.Kind(), op, in)
			}
		}
	}
	return out, want
}

// heavyCase is an operator and its operands.
type heavyCase struct {
	op graph.Op
	in []graph.TensorType
}

// heavyLSTM is an LSTM in both directions, with functions of every kind.
func heavyLSTM(d graph.DType) heavyCase {
	of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: d, Shape: shape} }
	return heavyCase{&graph.LSTM{
		Hidden: 40, Direction: "bidirectional", Activations: []string{"Sigmoid", "Tanh", "Tanh", "HardSigmoid", "Elu", "Softplus"},
		ActAlpha: []float64{0, 0, 0, 0.2, 1, 0}, ActBeta: []float64{0, 0, 0, 0.5, 0, 0},
	}, []graph.TensorType{of(7, 2, 30), of(2, 160, 30), of(2, 160, 40), of(2, 320)}}
}

// joinedHeads is attention of heads that lie in the result of one product.
func joinedHeads(rows, heads, size int64, causal bool) (*graph.ViewedAttention, []graph.TensorType) {
	width := heads * size
	view := func(part int64) []int64 { return []int64{part * width, size, 3 * width, 1} }
	x := graph.TensorType{DType: graph.F32, Shape: []int64{rows, 3 * width}}
	return &graph.ViewedAttention{Heads: []int64{heads}, Rows: rows, Cols: rows, Size: size, Width: size,
		Q: view(0), K: view(1), V: view(2), Y: []int64{0, size, width, 1}, Shape: []int64{rows, width}, Scale: 0.125, Causal: causal}, []graph.TensorType{x, x, x}
}
