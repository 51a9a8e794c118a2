//go:build poplar && poplarfake && linux && cgo

package poplar_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu"
)

// A transfer of a random program is four float32.
const randomBytes = 16

type vector [4]float32

func (v vector) bytes() []byte {
	var b []byte
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}

func vectorOf(b []byte) (v vector) {
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

// randomStep is a step of a program: it reads or writes a stream, computes one tensor of others, or repeats.
type randomStep struct {
	op      string // read, write, add, copy, repeat, wait
	s, a, b int    // streams, which are tensors too
	n       int
	body    []randomStep
}

// randomModel is an executable of the fake.
type randomModel struct {
	inputs, streams int // inputs come first
	depth           []int
	speculative     []bool
	programs        [2][]randomStep
}

func drawModel(t *rapid.T) *randomModel {
	m := &randomModel{inputs: rapid.IntRange(1, 3).Draw(t, "inputs")}
	m.streams = m.inputs + rapid.IntRange(1, 2).Draw(t, "outputs")
	for range m.streams {
		m.depth = append(m.depth, rapid.IntRange(1, 4).Draw(t, "depth"))
		m.speculative = append(m.speculative, rapid.IntRange(0, 3).Draw(t, "speculative") == 0)
	}
	for p := range m.programs {
		m.programs[p] = m.drawSteps(t, 0)
	}
	return m
}

func (m *randomModel) drawSteps(t *rapid.T, deep int) (all []randomStep) {
	stream := rapid.IntRange(0, m.streams-1)
	for range rapid.IntRange(1, 4).Draw(t, "steps") {
		s := randomStep{op: rapid.SampledFrom([]string{"read", "read", "write", "write", "add", "copy", "repeat", "wait"}).Draw(t, "step")}
		switch s.op {
		case "read":
			s.s = rapid.IntRange(0, m.inputs-1).Draw(t, "input")
		case "write":
			s.s = rapid.IntRange(m.inputs, m.streams-1).Draw(t, "output")
		case "add", "copy":
			s.s, s.a, s.b = stream.Draw(t, "to"), stream.Draw(t, "of"), stream.Draw(t, "and")
		case "wait":
			s.n = rapid.IntRange(0, 30).Draw(t, "microseconds")
		case "repeat":
			if deep == 2 {
				continue
			}
			s.n, s.body = rapid.IntRange(0, 5).Draw(t, "times"), m.drawSteps(t, deep+1)
		}
		all = append(all, s)
	}
	return all
}

func handleOf(i int) string { return fmt.Sprintf("s%d", i) }

// config writes the model in the words of the fake.
func (m *randomModel) config() ipu.EngineConfig {
	var b strings.Builder
	b.WriteString("GC_EXE_FAKE\n")
	c := ipu.EngineConfig{Name: "random"}
	for i := range m.streams {
		info := ipu.StreamInfo{Handle: handleOf(i), Bytes: randomBytes, Type: "f32", Shape: []int64{4}}
		way := "in"
		if i >= m.inputs {
			way, info.Direction = "out", ipu.DeviceToHost
		}
		for p := range m.programs {
			if m.moves(m.programs[p], i) {
				info.Programs = append(info.Programs, p)
			}
		}
		fmt.Fprintf(&b, "stream %s %s %d depth %d", info.Handle, way, randomBytes, m.depth[i])
		if m.speculative[i] {
			b.WriteString(" speculative")
		}
		b.WriteString("\n")
		c.Streams = append(c.Streams, info)
	}
	var write func(all []randomStep)
	write = func(all []randomStep) {
		for _, s := range all {
			switch s.op {
			case "read", "write":
				fmt.Fprintf(&b, "%s %s\n", s.op, handleOf(s.s))
			case "add":
				fmt.Fprintf(&b, "call add %s,%s %s\n", handleOf(s.a), handleOf(s.b), handleOf(s.s))
			case "copy":
				fmt.Fprintf(&b, "call copy %s %s\n", handleOf(s.a), handleOf(s.s))
			case "wait":
				fmt.Fprintf(&b, "wait %d\n", s.n)
			case "repeat":
				fmt.Fprintf(&b, "repeat %d\n", s.n)
				write(s.body)
				b.WriteString("end\n")
			}
		}
	}
	for p, steps := range m.programs {
		fmt.Fprintf(&b, "program %d p%d\n", p, p)
		write(steps)
		b.WriteString("end\n")
		c.Programs = append(c.Programs, ipu.ProgramInfo{Index: p, Name: fmt.Sprintf("p%d", p)})
	}
	c.Executable = []byte(b.String())
	return c
}

// moves reports whether a step moves a stream, if only in a repeat of zero times.
func (m *randomModel) moves(all []randomStep, stream int) bool {
	return slices.ContainsFunc(all, func(s randomStep) bool {
		return s.s == stream && (s.op == "read" || s.op == "write") || m.moves(s.body, stream)
	})
}

// transfers is how often a program moves a stream.
func (m *randomModel) transfers(program, stream int) (n int) {
	compute(m.programs[program], make([]vector, m.streams), func(i int) vector {
		if i == stream {
			n++
		}
		return vector{}
	}, func(i int, _ vector) {
		if i == stream {
			n++
		}
	})
	return n
}

// compute runs steps on tensors.
func compute(all []randomStep, tensors []vector, read func(stream int) vector, write func(stream int, v vector)) {
	for _, s := range all {
		switch s.op {
		case "read":
			tensors[s.s] = read(s.s)
		case "write":
			write(s.s, tensors[s.s])
		case "add":
			a, b := tensors[s.a], tensors[s.b]
			for k := range a {
				a[k] += b[k]
			}
			tensors[s.s] = a
		case "copy":
			tensors[s.s] = tensors[s.a]
		case "repeat":
			for range s.n {
				compute(s.body, tensors, read, write)
			}
		}
	}
}

// randomHost is one side of a stream, which checks that it is called as ipu.Stream says. Transfers of an input are numbered
// on and on, also from run to run.
type randomHost struct {
	stream  int
	output  bool
	most    int // transfers that may be ahead
	refuses func() bool
	fails   int // the transfer of a run whose Fetch fails; negative: none
	how     string

	calling sync.Mutex
	first   int // transfers complete before the run
	done    int
	ahead   int
	got     []vector
	wrong   []string
}

var errRandom = errors.New("drawn to fail")

// item is transfer number k of an input.
func item(stream, k int) vector {
	return vector{float32(stream + 1), float32(k), float32(100*stream + k), 1}
}

func (h *randomHost) enter(what string) func() {
	if !h.calling.TryLock() {
		h.wrong = append(h.wrong, what+" during another call")
		return func() {}
	}
	return h.calling.Unlock
}

func (h *randomHost) complain(format string, args ...any) {
	h.wrong = append(h.wrong, fmt.Sprintf(format, args...))
}

func (h *randomHost) Fetch(_ context.Context, buf []byte) error {
	defer h.enter("Fetch")()
	if len(buf) != randomBytes {
		h.complain("Fetch of %d bytes", len(buf))
	}
	if k := h.done + h.ahead - h.first; k == h.fails {
		switch h.how {
		case "panic":
			panic(errRandom)
		case "leave":
			runtime.Goexit()
		}
		return errRandom
	}
	if h.output {
		h.got = append(h.got, vectorOf(buf))
	} else {
		copy(buf, item(h.stream, h.done+h.ahead).bytes())
	}
	h.ahead++
	h.check()
	return nil
}

func (h *randomHost) Prefetch(buf []byte) bool {
	defer h.enter("Prefetch")()
	if h.output {
		h.complain("Prefetch of an output")
	}
	if h.refuses() || h.fails >= 0 && h.done+h.ahead-h.first >= h.fails {
		for i := range buf {
			buf[i] = 0xEE
		}
		return false
	}
	copy(buf, item(h.stream, h.done+h.ahead).bytes())
	h.ahead++
	h.check()
	return true
}

func (h *randomHost) check() {
	if h.ahead > h.most {
		h.complain("%d transfers are ahead, of a depth that allows %d", h.ahead, h.most)
	}
}

func (h *randomHost) Complete() {
	defer h.enter("Complete")()
	if h.ahead == 0 {
		h.complain("Complete without a transfer")
		return
	}
	h.ahead--
	h.done++
}

func (h *randomHost) InvalidatePrefetched() {
	defer h.enter("InvalidatePrefetched")()
	h.ahead = 0
}

// TestRandomPrograms runs random programs over random hosts, with whatever the fake may do of its own accord, and compares
// what is delivered, what is complete and what fails with a plain interpreter of the programs.
func TestRandomPrograms(t *testing.T) {
	b, d := backend(t), attached(t)
	t.Setenv("FAKE_POPLAR_NASTY", "")
	ctx := context.Background()
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		c := m.config()
		var nasty []string
		for _, word := range []string{"poison", "refuse", "extra", "delay", "discard", "silent", "forget", "latency=10"} {
			if rapid.Bool().Draw(t, word) {
				nasty = append(nasty, word)
			}
		}
		nasty = append(nasty, fmt.Sprint("seed=", rapid.IntRange(1, 1000).Draw(t, "seed")))
		require.NoError(t, os.Setenv("FAKE_POPLAR_NASTY", strings.Join(nasty, ",")))
		prefetch := rapid.SampledFrom([]string{"true", "true", "false"}).Draw(t, "prefetch")
		ahead := rapid.SampledFrom([]string{"unlimited", "1", "0", "3"}).Draw(t, "look-ahead")
		c.Options = []ipu.Option{
			{Name: "exchange.enablePrefetch", Value: prefetch}, {Name: "streamCallbacks.maxLookahead", Value: ahead},
			{Name: "streamCallbacks.multiThreadMode", Value: rapid.SampledFrom([]string{"singleThread", "collaborative", "dedicated"}).Draw(t, "threads")},
		}
		e, err := b.NewEngine(c)
		require.NoError(t, err)
		defer func() { require.NoError(t, e.Close()) }()
		require.NoError(t, e.Load(ctx, d))

		// What is connected to a stream: one of these, or an empty end.
		hosts := make([]*randomHost, m.streams)
		constant := make([]*fixed, m.streams)
		window := make([]*windowed, m.streams)
		connect := func(i int) {
			hosts[i], constant[i], window[i] = nil, nil, nil
			input := i < m.inputs
			kinds := []string{"called", "called", "window", "window", "empty"}
			if input {
				kinds = append(kinds, "constant")
			}
			var s ipu.Stream = nothing{}
			switch rapid.SampledFrom(kinds).Draw(t, "host") {
			case "called":
				h := &randomHost{stream: i, output: !input, most: m.depth[i] + 1}
				refuses := rapid.IntRange(0, 3).Draw(t, "refuses") // one in so many, 0 none
				calls := 0
				h.refuses = func() bool { calls++; return refuses > 0 && calls%refuses == 0 }
				if prefetch == "false" || ahead == "0" {
					h.refuses = func() bool { h.complain("Prefetch, which is off"); return false }
				}
				hosts[i], s = h, h
			case "window":
				count := max(m.transfers(0, i), m.transfers(1, i)) + rapid.IntRange(-2, 5).Draw(t, "more")
				window[i] = newWindowed(randomBytes, max(1, count), !input)
				for k := range window[i].w.Count {
					copy(window[i].w.Block[k*randomBytes:], item(i, k).bytes())
				}
				s = window[i]
			case "constant":
				constant[i] = &fixed{data: item(i, 7).bytes()}
				s = constant[i]
			}
			require.NoError(t, e.Connect(handleOf(i), s))
		}
		for i := range m.streams {
			connect(i)
		}
		tensors := make([]vector, m.streams)
		load := func() {
			require.NoError(t, e.Load(ctx, d))
			clear(tensors)
		}
		for range rapid.IntRange(1, 5).Draw(t, "runs") {
			switch rapid.IntRange(0, 5).Draw(t, "before the run") {
			case 0:
				load()
			case 1:
				connect(rapid.IntRange(0, m.streams-1).Draw(t, "stream"))
			}
			p := rapid.IntRange(0, 1).Draw(t, "program")
			moved := make([]int, m.streams)
			want := make([][]vector, m.streams)
			var fail []string // streams that the run can't move
			failing := rapid.IntRange(-4, m.streams-1).Draw(t, "failing")
			for i, h := range hosts {
				if w := window[i]; w != nil {
					w.rewind()
					w.completed = 0
					if w.w.Count < m.transfers(p, i) {
						fail = append(fail, handleOf(i))
					}
				}
				if h != nil {
					h.first, h.got, h.fails = h.done, nil, -1
				}
			}
			if h := hosts[max(0, failing)]; failing >= 0 && h != nil && h.ahead == 0 && fail == nil {
				h.fails, h.how = rapid.IntRange(0, 6).Draw(t, "fails at"), rapid.SampledFrom([]string{"error", "panic", "leave"}).Draw(t, "how")
				if h.fails < m.transfers(p, failing) {
					fail = append(fail, handleOf(failing))
				}
			}
			compute(m.programs[p], tensors, func(i int) vector {
				moved[i]++
				switch {
				case constant[i] != nil:
					return item(i, 7)
				case window[i] != nil:
					return item(i, moved[i]-1)
				case hosts[i] != nil:
					return item(i, hosts[i].done+moved[i]-1)
				}
				return vector{}
			}, func(i int, v vector) {
				moved[i]++
				want[i] = append(want[i], v)
			})
			err := e.Run(ctx, p)
			for i, h := range hosts {
				if h != nil {
					require.Empty(t, h.wrong, "stream %s", handleOf(i))
				}
			}
			if fail != nil {
				require.ErrorIs(t, err, ipu.ErrCallback)
				require.True(t, slices.ContainsFunc(fail, func(handle string) bool {
					return strings.HasPrefix(err.Error(), fmt.Sprintf("run program %d %q: stream %q: stream callback failed: ", p, fmt.Sprint("p", p), handle))
				}), "%v fail, the error is: %v", fail, err)
				load() // what it has computed so far is anybody's guess
				for i, w := range window {
					require.True(t, w == nil || w.completed <= w.w.Count, "stream %s: more is complete than there is", handleOf(i))
				}
				for i, h := range hosts {
					if h != nil {
						require.Zero(t, h.ahead, "stream %s", handleOf(i))
					}
				}
				continue
			}
			require.NoError(t, err)
			for i := range m.streams {
				switch {
				case constant[i] != nil && moved[i] > 0:
					require.Positive(t, constant[i].completed)
				case hosts[i] != nil:
					require.Equal(t, moved[i], hosts[i].done-hosts[i].first, "transfers of %s that are complete", handleOf(i))
					require.Equal(t, want[i], hosts[i].got, "data of %s", handleOf(i))
				case window[i] != nil:
					require.Equal(t, moved[i], window[i].completed, "transfers of %s that are complete", handleOf(i))
					for k, v := range want[i] {
						require.Equal(t, v, vectorOf(window[i].w.Block[k*randomBytes:]), "data of %s", handleOf(i))
					}
				}
			}
		}
	})
}
