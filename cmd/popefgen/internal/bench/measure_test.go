package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/popeftest"
)

func floats(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// scaled is a model of y = w·x for three samples of one element, in two device iterations;
// w is given before the load programs run.
func scaled(t testing.TB) *Target {
	b := graph.NewBuilder("scaled")
	f32 := graph.TensorType{DType: graph.F32, Shape: []int64{3}}
	one := graph.TensorType{DType: graph.F32, Shape: []int64{1}}
	x, w, y := b.AddLocal("x", f32), b.AddPersistent("w", one), b.AddLocal("y", f32)
	g := b.BeginGraph("main")
	require.NoError(t, b.NodeTo(&graph.Binary{Fn: graph.Mul}, "mul", []graph.TensorID{y}, x, w))
	b.AddProgram(0, "load", b.CopyIn("h2d_w", w))
	b.AddProgram(5, "main", b.Repeat(2, b.CopyIn("h2d_x", x), b.Call(g), b.CopyOut("d2h_y", y)))
	exe, err := b.Finish()
	require.NoError(t, err)

	info := popef.TensorInfo{DataType: popef.F32, Shape: []int64{3}}
	anchor := func(k popef.TensorType, name, handle string, program uint32) popef.Anchor {
		return popef.Anchor{Name: name, Handle: handle, Type: k, Info: info, Programs: []uint32{program}}
	}
	weight := anchor(popef.Input, "w", "h2d_w", 0)
	weight.Info.Shape = one.Shape
	var file popeftest.Buffer
	writer := popef.NewWriter(&file)
	require.NoError(t, writer.WriteMetadata(&popef.Metadata{
		ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, IPUVersion: 2, IsInference: true, Executable: "scaled", DeviceIterations: 2,
		ProgramFlow: popef.ProgramFlow{Load: []uint32{0}, Main: []uint32{5}},
		Anchors: []popef.Anchor{anchor(popef.Input, "x", "h2d_x", 5), weight,
			anchor(popef.Output, "y", "d2h_y", 5)},
	}))
	e, err := writer.CreateExecutable("scaled", false)
	require.NoError(t, err)
	require.NoError(t, encoding.Encode(e, exe))
	require.NoError(t, e.Close())
	require.NoError(t, writer.Close())

	target := &Target{Bytes: file.Bytes(), Name: "scaled.popef", Backend: "cpu", Threads: 1}
	c, err := target.contract()
	require.NoError(t, err)
	target.Inputs = []Input{{*c.Anchor("h2d_x"), [][]byte{floats(1, 2, 3, 4, 5, 6), floats(7, 8, 9, 10, 11, 12)}}}
	target.Given = []Input{{*c.Anchor("h2d_w"), [][]byte{floats(2)}}}
	return target
}

// TestClients wants every kind of client to give requests their own data in
// turn and to get the right answers.
func TestClients(t *testing.T) {
	ctx := context.Background()
	want := [][]byte{floats(2, 4, 6, 8, 10, 12), floats(14, 16, 18, 20, 22, 24)}
	target := scaled(t)
	for _, mode := range []Mode{Run, Submit, Queues} {
		for _, inFlight := range []int{1, 3} {
			if inFlight > 1 && mode == Run {
				continue
			}
			d, err := target.open(ctx, Config{Mode: mode, Clients: 1, InFlight: inFlight, Replicas: 1})
			require.NoError(t, err)
			var got [][]byte
			for i := range 4 {
				slot := i % inFlight
				require.NoError(t, d.clients[0].start(slot))
				require.NoError(t, d.clients[0].finish(slot))
				got = append(got, append([]byte(nil), answer(d.clients[0], slot)...))
			}
			require.Empty(t, cmp.Diff([][]byte{want[0], want[1], want[0], want[1]}, got), mode)
			require.NoError(t, d.close())
		}
	}
}

// answer is the memory of a client's only output.
func answer(c client, slot int) []byte {
	switch c := c.(type) {
	case *requester:
		return c.memory[slot].out[0]
	case *submitter:
		return c.memory[slot].out[0]
	case *enqueuer:
		return c.parts[slot][len(c.turns.inputs)]
	}
	return nil
}

// TestCallback wants transfers in turn, also where some are fetched ahead and
// thrown away.
func TestCallback(t *testing.T) {
	memory := cut([][]byte{{1, 2}, {3, 4}}, 2)
	require.Equal(t, [][]byte{{1}, {2}, {3}, {4}}, memory)
	in := callback(memory, true)
	var got []byte
	buf := make([]byte, 1)
	take := func() {
		require.NoError(t, in.Fetch(context.Background(), buf))
		got = append(got, buf[0])
	}
	take()
	in.Complete()
	require.True(t, in.Prefetch(buf))
	require.True(t, in.Prefetch(buf))
	require.EqualValues(t, 3, buf[0])
	in.InvalidatePrefetched()
	for range 4 {
		take()
		in.Complete()
	}
	require.Equal(t, []byte{1, 2, 3, 4, 1}, got)

	out := callback(memory, false)
	require.False(t, out.Prefetch(buf))
	buf[0] = 9
	require.NoError(t, out.Fetch(context.Background(), buf))
	require.EqualValues(t, 9, memory[0][0])
}

func TestSampler(t *testing.T) {
	ctx := context.Background()
	d, err := scaled(t).open(ctx, Config{Mode: Samples, Clients: 2, InFlight: 1, Replicas: 1, Samples: 4})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.close()) }()
	require.Equal(t, 4, d.samples)
	for range 3 {
		for _, c := range d.clients {
			require.NoError(t, c.start(0))
			require.NoError(t, c.finish(0))
		}
	}
}

// TestSamplesOfBlocks wants samples behind each other that lie across a
// transfer's blocks.
func TestSamplesOfBlocks(t *testing.T) {
	// Two transfers of two blocks with a part of two bytes of each of two samples.
	in := Input{Requests: [][]byte{[]byte("a0b0a1b1" + "c0d0c1d1")}}
	s := in.samples(2, 2, 2, 3)
	require.Equal(t, "a0a1b0b1c0c1d0d1", string(s.data))
	require.Equal(t, 4, s.n)
	require.Equal(t, 4, s.bytes)
	s = in.samples(2, 2, 2, 5)
	require.Equal(t, "a0a1b0b1c0c1d0d1a0a1b0b1c0c1d0d1", string(s.data))
}

func TestMeasure(t *testing.T) {
	configs := []Config{
		{Mode: Run, Clients: 1, InFlight: 1, Replicas: 1, Samples: 1},
		{Mode: Run, Clients: 3, InFlight: 1, Replicas: 2, Samples: 1},
		{Mode: Run, Clients: 1, InFlight: 1, Replicas: 1, Samples: 1, ThreadSafe: true},
		{Mode: Submit, Clients: 2, InFlight: 4, Replicas: 2, Samples: 1},
		{Mode: Samples, Clients: 3, InFlight: 1, Replicas: 1, Samples: 2, Linger: time.Microsecond},
		{Mode: Callbacks, Clients: 1, InFlight: 1, Replicas: 1, Samples: 1},
		{Mode: Queues, Clients: 2, InFlight: 4, Replicas: 1, Samples: 1},
	}
	for i := range configs {
		configs[i].Duration, configs[i].Warmup = 5*time.Millisecond, time.Millisecond
	}
	all, err := Measure(context.Background(), scaled(t), configs...)
	require.NoError(t, err)
	require.Len(t, all, len(configs))
	for i, m := range all {
		c := configs[i]
		require.Equal(t, c.Mode, m.Mode)
		require.GreaterOrEqual(t, m.Took, c.Duration)
		require.Positive(t, m.Requests)
		require.Positive(t, m.RequestsPerSecond)
		order := []time.Duration{0, m.Min, m.P50, m.P90, m.P99, m.P999, m.Max}
		require.IsNonDecreasing(t, order, "%+v", c)
		require.Equal(t, i == 1 || i == 2 || i == 4, m.ThreadSafe, "%+v", c)
		if c.Mode == Samples {
			require.InEpsilon(t, 2*m.RequestsPerSecond, m.SamplesPerSecond, 1e-9)
		} else {
			require.Zero(t, m.SamplesPerSecond)
		}
	}
}

// TestRequestsAllocateNothing wants every kind of client, and what it calls, to
// allocate nothing.
func TestRequestsAllocateNothing(t *testing.T) {
	target := scaled(t)
	for _, c := range []Config{
		{Mode: Run, Clients: 1, InFlight: 1, Replicas: 1},
		{Mode: Run, Clients: 1, InFlight: 1, Replicas: 2, ThreadSafe: true},
		{Mode: Submit, Clients: 1, InFlight: 2, Replicas: 1},
		{Mode: Samples, Clients: 1, InFlight: 1, Replicas: 1, Samples: 6},
		{Mode: Callbacks, Clients: 1, InFlight: 1, Replicas: 1},
		{Mode: Queues, Clients: 1, InFlight: 2, Replicas: 1},
	} {
		d, err := target.open(context.Background(), c)
		require.NoError(t, err)
		var failed error
		n := testing.AllocsPerRun(50, func() {
			for slot := range c.InFlight {
				failed = errors.Join(failed, d.clients[0].start(slot))
			}
			for slot := range c.InFlight {
				failed = errors.Join(failed, d.clients[0].finish(slot))
			}
		})
		require.NoError(t, failed)
		require.Zero(t, n, "%+v", c)
		require.NoError(t, d.close())
	}
}

// TestMeasureEnds wants a context to end every kind of client.
func TestMeasureEnds(t *testing.T) {
	target := scaled(t)
	for _, mode := range Modes() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		_, err := Measure(ctx, target, Config{Mode: mode, Clients: 1, InFlight: 1, Replicas: 1, Samples: 1, Duration: time.Hour})
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, mode)
	}
}

func TestCheck(t *testing.T) {
	good := Config{Mode: Run, Clients: 1, InFlight: 1, Replicas: 1, Samples: 1, Duration: time.Second}
	require.NoError(t, good.Check())
	for want, change := range map[string]func(*Config){
		"--clients 0: want 1 to 1024":                        func(c *Config) { c.Clients = 0 },
		"--in-flight 5000: want 1 to 1024":                   func(c *Config) { c.InFlight = 5000 },
		"--replicas -1: want 1 to 1024":                      func(c *Config) { c.Replicas = -1 },
		"--samples 0: want 1 to 16777216":                    func(c *Config) { c.Samples = 0 },
		`--mode "x": want one of [run submit`:                func(c *Config) { c.Mode = "x" },
		"--duration 0s: want a time above 0":                 func(c *Config) { c.Duration = 0 },
		"--warmup -1ns: want 0 or more":                      func(c *Config) { c.Warmup = -1 },
		"--in-flight is for --mode submit and queues":        func(c *Config) { c.InFlight = 2 },
		"--replicas is for --mode run and submit":            func(c *Config) { c.Mode, c.Replicas = Queues, 2 },
		"--clients 2: a session whose streams are callbacks": func(c *Config) { c.Mode, c.Clients = Callbacks, 2 },
		"--thread-safe is for --mode run":                    func(c *Config) { c.Mode, c.ThreadSafe = Submit, true },
		"--samples is for --mode samples, not for run":       func(c *Config) { c.Samples = 2 },
		"--batch-dim -1: want 0 or more":                     func(c *Config) { c.BatchDim = -1 },
		"--linger -2ns: want 0 or more":                      func(c *Config) { c.Linger = -2 },
	} {
		c := good
		change(&c)
		require.ErrorContains(t, c.Check(), want)
		_, err := Measure(context.Background(), nil, c)
		require.ErrorContains(t, err, want)
	}
	all := Config{Clients: 4, InFlight: 4, Replicas: 2, Samples: 8, ThreadSafe: true, Duration: 1}
	for _, m := range Modes() {
		all.Mode = m
		fit := all.Fit()
		require.NoError(t, fit.Check(), m)
	}
}

func TestOpen(t *testing.T) {
	o, m, err := Open(context.Background(), scaled(t))
	require.NoError(t, err)
	require.Equal(t, o.Total, o.Read+o.Plan+o.Load+o.Weights+o.First)
	require.Positive(t, m.Executable)
	require.Positive(t, m.Arena)
	if runtime.GOOS == "linux" {
		require.Greater(t, m.Resident, int64(1<<20))
	}
	broken := scaled(t)
	broken.Given = nil
	_, _, err = Open(context.Background(), broken)
	require.ErrorContains(t, err, `"w"`)
}

// TestProfileFill wants what was counted to be divided among requests.
func TestProfileFill(t *testing.T) {
	p := &Profile{Requests: 10, Machine: Machine{GFLOPs: 100, Reads: []Reads{{1000, 2}, {3000, 1}}}}
	p.fill([]cpu.NodeProfile{
		{Program: 5, Step: 0, Name: "x", Kind: cpu.CopyIn, Calls: 10, Total: 10 * time.Microsecond},
		{Program: 5, Step: 1, Name: "a", Op: "MatMul", Kind: cpu.Compute, Calls: 10, Total: 60 * time.Microsecond, FLOPs: 120e3, Bytes: 3000, Size: 3000},
		{Program: 5, Step: 3, Name: "b", Op: "MatMul", Kind: cpu.Compute, Calls: 20, Total: 20 * time.Microsecond, FLOPs: 10e3, Bytes: 500, Size: 500},
		{Program: 5, Step: 4, Name: "c", Op: "Unary", Function: "exp", Kind: cpu.Compute, Calls: 10, Total: 10 * time.Microsecond, Bytes: 4000, Size: 2999},
	})
	require.Equal(t, 10*time.Microsecond, p.Profiled)
	var ops, nodes []string
	for _, s := range p.Operators {
		ops = append(ops, s.Op+" "+s.Function)
	}
	for _, s := range p.Nodes {
		nodes = append(nodes, s.Name)
	}
	require.Equal(t, []string{"MatMul ", "copy in ", "Unary exp"}, ops)
	require.Equal(t, []string{"a", "b", "x", "c"}, nodes)
	m := p.Operators[0]
	require.Equal(t, 2, m.Steps)
	require.Equal(t, 3.0, m.Calls)
	require.Equal(t, 8*time.Microsecond, m.Time)
	require.InEpsilon(t, 0.8, m.Share, 1e-9)
	require.InEpsilon(t, 140e3, m.FLOPs, 1e-9)
	require.InEpsilon(t, 140e3/8000, m.GFLOPs, 1e-9)
	require.InEpsilon(t, 0.175, m.Peak, 1e-9)
	require.InEpsilon(t, 4000.0, m.Bytes, 1e-9)
	require.InEpsilon(t, 0.5, m.GBytes, 1e-9)
	require.InEpsilon(t, (3000.0+1000.0/2)/8000, m.Memory, 1e-9) // at the rate of each node's size
	require.InEpsilon(t, 2.0, p.Operators[2].Memory, 1e-9)       // what is read twice counts twice
	require.Zero(t, p.Operators[2].FLOPs+p.Operators[2].Peak)
}

// TestProfilePhases: steps of a model that learns are forward, backward and update by their graphs.
func TestProfilePhases(t *testing.T) {
	steps := []cpu.NodeProfile{
		{Name: "x", Kind: cpu.CopyIn, Calls: 2, Total: 10},
		{Name: "a", Op: "MatMul", Graph: "main", Kind: cpu.Compute, Calls: 2, Total: 40, FLOPs: 5},
		{Name: "a", Op: "MatMul", Graph: "backward", Kind: cpu.Compute, Calls: 2, Total: 30}, // computed again
		{Name: "grad/a", Op: "MatMul", Graph: "backward", Kind: cpu.Compute, Calls: 2, Total: 60},
		{Name: "grad/norm", Op: "Reduce", Graph: "steps", Kind: cpu.Compute, Calls: 2, Total: 4},
		{Name: "update w", Op: "Update", Graph: "steps", Kind: cpu.Compute, Calls: 4, Total: 16},
	}
	p := &Profile{Requests: 2}
	p.fill(steps)
	var got []string
	for _, s := range p.Phases {
		got = append(got, fmt.Sprint(s.Op, " ", s.Steps, " ", s.Calls, " ", s.Time, " ", s.Share, " ", s.FLOPs))
	}
	require.Equal(t, []string{"forward 1 1 20ns 0.25 5", "backward 2 2 45ns 0.5625 0", "update 2 3 10ns 0.125 0"}, got)
	p = &Profile{Requests: 2}
	p.fill(steps[:5]) // nothing is learnt
	require.Empty(t, p.Phases)
}

func TestProfile(t *testing.T) {
	p, err := NewProfile(context.Background(), scaled(t), 5*time.Millisecond, 0)
	require.NoError(t, err)
	require.Positive(t, p.Requests)
	require.Positive(t, p.Machine.GFLOPs)
	require.Positive(t, p.Machine.GBytes)
	require.LessOrEqual(t, p.Profiled, p.Request)
	require.Empty(t, p.Phases)
	if runtime.GOOS == "linux" {
		require.Positive(t, p.Processor)
	}
	for _, s := range p.Nodes {
		if s.Name == "mul" {
			require.InEpsilon(t, 2.0, s.Calls, 1e-9, "one for each device iteration")
			require.InEpsilon(t, 2*(3+1+3)*4.0, s.Bytes, 1e-9)
			return
		}
	}
	t.Fatal("no node mul")
}
