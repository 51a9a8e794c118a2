package kerneltest

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Threads is a Pool that runs every part in a goroutine of its own.
type Threads int

// Workers returns the number of workers.
func (n Threads) Workers() int { return int(n) }

// Pays returns true: all work is shared.
func (n Threads) Pays(int) bool { return true }

// Ended returns false.
func (n Threads) Ended() bool { return false }

// Run runs the parts of t.
func (n Threads) Run(t tensor.Task, parts int) {
	var wg sync.WaitGroup
	for i := range parts {
		wg.Go(func() { t.Do(i) })
	}
	wg.Wait()
}

// RunRounds runs the rounds of t, one after the other.
func (n Threads) RunRounds(t tensor.RoundTask, rounds, items int) {
	for r := range rounds {
		var wg sync.WaitGroup
		for i := range int(n) {
			wg.Go(func() { t.DoRound(r, items*i/int(n), items*(i+1)/int(n)) })
		}
		wg.Wait()
	}
}

// Main runs all tests of a package. Under the race detector properties are tried a third as often, unless a flag says
// otherwise: each try there looks at every element of what workers share.
func Main(m *testing.M) {
	tensor.Grain = 64 // so that tensors of a few hundred elements are cut
	if raceEnabled {
		flag.Set("rapid.checks", "35")
	}
	os.Exit(m.Run())
}

// BindFrom binds op by the first of the families that has its kind.
func BindFrom(families []map[string]tensor.Binder, op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	for _, family := range families {
		if bind := family[op.Kind()]; bind != nil {
			return bind(op, in, out)
		}
	}
	return nil, fmt.Errorf("no family has a kernel of operator %s", op.Kind())
}

// Fataler is *testing.T or *rapid.T.
type Fataler interface {
	Helper()
	Fatalf(string, ...any)
}

// Run computes op, bound by bind, in one thread, in several, and in place where that is
// allowed, and fails if the results differ.
func Run(t Fataler, bind tensor.Binder, op graph.Op, in []graph.TensorType, data [][]byte) ([]graph.TensorType, [][]byte) {
	t.Helper()
	out, err := op.Infer(in)
	if err != nil {
		t.Fatalf("%s %+v of %v: %v", op.Kind(), op, in, err)
	}
	k, err := bind(op, in, out)
	if err != nil {
		t.Fatalf("%v: %v", in, err)
	}
	scratch := Aligned(k.Scratch())
	compute := func(p tensor.Pool, data [][]byte, inPlace int) [][]byte {
		for i := range scratch {
			scratch[i] = 0xa5
		}
		results := make([][]byte, len(out))
		for i, o := range out {
			results[i] = Aligned(tensor.Elements(o.Shape) * o.DType.Size())
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
	want := compute(tensor.Serial{}, data, -1)
	same := func(how string, got [][]byte) {
		t.Helper()
		for i := range want {
			if !slices.Equal(want[i], got[i]) {
				t.Fatalf("%s %+v of %v: %s gives other results", op.Kind(), op, in, how)
			}
		}
	}
	same("another run", compute(tensor.Serial{}, data, -1))
	same("a pool of 4", compute(Threads(4), data, -1))
	if p, ok := k.(tensor.InPlacer); ok {
		for i := range in {
			if p.InPlace(i) {
				same(fmt.Sprintf("in place of operand %d", i), compute(Threads(3), data, i))
			}
		}
	}
	return out, want
}

// InTurn is a Pool that pretends to have several workers without making
// goroutines, which would be counted as allocations.
type InTurn int

// Workers returns the number of workers.
func (n InTurn) Workers() int { return int(n) }

// Pays returns true: all work is shared.
func (n InTurn) Pays(int) bool { return true }

// Ended returns false.
func (n InTurn) Ended() bool { return false }

// Run runs the parts of t.
func (n InTurn) Run(t tensor.Task, parts int) { tensor.Serial{}.Run(t, parts) }

// RunRounds runs the rounds of t, one after the other.
func (n InTurn) RunRounds(t tensor.RoundTask, rounds, items int) {
	tensor.Serial{}.RunRounds(t, rounds, items)
}

// Benchmark measures op, bound by bind, on one thread.
func Benchmark(b *testing.B, bind tensor.Binder, name string, op graph.Op, in ...graph.TensorType) {
	b.Run(fmt.Sprintf("%s/%v", name, in), func(b *testing.B) {
		out, err := op.Infer(in)
		require.NoError(b, err)
		k, err := bind(op, in, out)
		require.NoError(b, err)
		var data [][]byte
		for i, tt := range in {
			elems := make([]Elem, tensor.Elements(tt.Shape))
			for j := range elems {
				x := j * 7919 % 1001
				elems[j] = Elem{F: float64(x-500) / 50, I: int64(x * i % 50)}
			}
			data = append(data, Store(tt.DType, elems))
		}
		results := [][]byte{Aligned(tensor.Elements(out[0].Shape) * out[0].DType.Size())}
		scratch := Aligned(k.Scratch())
		n := max(tensor.Elements(in[0].Shape), tensor.Elements(out[0].Shape))
		for b.Loop() {
			if err := k.Run(tensor.Serial{}, data, results, scratch); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/element")
	})
}

// RunPacked is runWith, and fails if packing the operands that the kernel wants
// packed changes the results.
func RunPacked(t Fataler, bind tensor.Binder, op graph.Op, in []graph.TensorType, data [][]byte) ([]graph.TensorType, [][]byte) {
	t.Helper()
	out, want := Run(t, bind, op, in, data)
	k, err := bind(op, in, out)
	if err != nil {
		t.Fatalf("%v", err)
	}
	p, ok := k.(tensor.Packer)
	if !ok {
		return out, want
	}
	data = slices.Clone(data)
	for i := range in {
		if n := p.Packed(i); n > 0 && data[i] != nil {
			dst := Aligned(n)
			p.Pack(i, dst, data[i])
			data[i] = dst
			p.UsePacked(i)
			if p.Packed(i) != n {
				t.Fatalf("operand %d takes %d bytes packed, %d before", i, p.Packed(i), n)
			}
		}
	}
	for _, pool := range []tensor.Pool{tensor.Serial{}, Threads(5), Threads(2), tensor.Serial{}} {
		var got [][]byte
		for _, o := range out {
			got = append(got, Aligned(tensor.Elements(o.Shape)*o.DType.Size()))
		}
		if err := k.Run(pool, data, got, Aligned(k.Scratch())); err != nil {
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

// HeavyCase is an operator and its operands.
type HeavyCase struct {
	Op graph.Op
	In []graph.TensorType
}

// HeavyLSTM is an LSTM in both directions, with functions of every kind.
func HeavyLSTM(d graph.DType) HeavyCase {
	of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: d, Shape: shape} }
	return HeavyCase{&graph.LSTM{
		Hidden: 40, Direction: "bidirectional", Activations: []string{"Sigmoid", "Tanh", "Tanh", "HardSigmoid", "Elu", "Softplus"},
		ActAlpha: []float64{0, 0, 0, 0.2, 1, 0}, ActBeta: []float64{0, 0, 0, 0.5, 0, 0},
	}, []graph.TensorType{of(7, 2, 30), of(2, 160, 30), of(2, 160, 40), of(2, 320)}}
}

// JoinedHeads is attention of heads that lie in the result of one product.
func JoinedHeads(rows, heads, size int64, causal bool) (*graph.ViewedAttention, []graph.TensorType) {
	width := heads * size
	view := func(part int64) []int64 { return []int64{part * width, size, 3 * width, 1} }
	x := graph.TensorType{DType: graph.F32, Shape: []int64{rows, 3 * width}}
	return &graph.ViewedAttention{Heads: []int64{heads}, Rows: rows, Cols: rows, Size: size, Width: size,
		Q: view(0), K: view(1), V: view(2), Y: []int64{0, size, width, 1}, Shape: []int64{rows, width}, Scale: 0.125, Causal: causal}, []graph.TensorType{x, x, x}
}
