package page

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/popef/popeftest"
)

func written(t testing.TB, o Options) string {
	var b bytes.Buffer
	require.NoError(t, Write(&b, o))
	return b.String()
}

func TestWriteIsDeterministic(t *testing.T) {
	m := digitsModel(t)
	page := written(t, Options{Model: m})
	require.Equal(t, page, written(t, Options{Model: digitsModel(t)}))
	old := Model{Name: "old", Model: modelOf(t, residual(5, 10, slashed))}
	new := Model{Name: "new", Model: modelOf(t, residual(6, 11, slashed))}
	o := Options{Model: new, Old: &old, Verdict: verdictOf(old, new)}
	require.Equal(t, written(t, o), written(t, o))

	// One file, nothing from elsewhere.
	require.NotRegexp(t, `(?i)\b(src|href)="?(https?:|//)`, page)
	require.NotContains(t, page, "@import")
	require.NotContains(t, page, "url(http")
	require.Contains(t, page, "default-src 'none'")
}

// outline is a drawing's boxes as they are nested, one a line.
func outline(b *box, indent string) string {
	var s strings.Builder
	for _, k := range b.Kids {
		fmt.Fprintf(&s, "%s%s\n", indent, strings.Join(k.labels(), " | "))
		s.WriteString(outline(k, indent+"  "))
	}
	return s.String()
}

func TestOutlineOfDigits(t *testing.T) {
	d, err := draw(digits(t, allPasses()...).Executable, map[string]string{"h2d_image": "image"})
	require.NoError(t, err)
	require.Equal(t, strings.TrimLeft(`
image | input  f32[1,1,8,8]
module 0 | 9 operators | 3 Relu · 2 Conv · 2 Gemm …
  Conv | 3x3 | 16×1×3×3 + 16 | 0.0
  Relu | 0.1
  Conv | 3x3 | 32×16×3×3 + 32 | 0.2
  Relu | 0.3
  MaxPool | 2x2, stride 2 | 0.4
  Reshape
  Gemm | 64×512 + 64 | 0.6
  Relu | 0.7
  Gemm | 10×64 + 10 | 0.8
Softmax | 1
anchor_d2h_probabilities | output  f32[1,10]
`, "\n"), outline(d.root, ""))
}

func TestGroups(t *testing.T) {
	top := func(e *graph.Executable) (lines []string) {
		d, err := draw(e, nil)
		require.NoError(t, err)
		for _, k := range d.root.Kids {
			lines = append(lines, k.Title)
		}
		return lines
	}
	require.Equal(t, []string{"input", "dense layer 1 of 3", "dense layer 2 of 3", "dense layer 3 of 3", "MatMul", "output"}, top(residual(3, 10, flat)))
	require.Equal(t, []string{"input", "40 times dense layer", "MatMul", "output"}, top(residual(40, 10, flat)))
	require.Equal(t, []string{"input", "block0", "block1", "block2", "MatMul", "output"}, top(residual(3, 10, slashed)))
	// Numbers behind an operator's name count operators; they are no groups.
	require.Equal(t, top(residual(3, 10, flat)), top(residual(3, 10, func(b int, part string) string { return fmt.Sprintf("%s.%d", part, b) })))
	// Too many boxes in a row, with nothing that repeats, are cut.
	kids := make([]*box, 1000)
	for i := range kids {
		kids[i] = &box{Title: fmt.Sprint(i), node: i}
	}
	list := cut(repeats(kids))
	require.Len(t, list, 10)
	require.Equal(t, "operators 101 to 200", list[1].Title)
	require.Len(t, list[1].Kids, 100)
}

func TestControlFlow(t *testing.T) {
	b := graph.TensorType{DType: graph.Bool}
	f := graph.TensorType{DType: graph.F32, Shape: []int64{2}}
	e := &graph.Executable{Name: "if", Tensors: []graph.Tensor{{Name: "cond", Type: b}, {Name: "x", Type: f}, {Name: "a", Type: f}, {Name: "b", Type: f}, {Name: "y", Type: f}}}
	e.Graphs = []graph.Graph{
		{Name: "main", Nodes: []graph.Node{{Op: &graph.If{Then: 1, Else: 2}, Name: "choice", Inputs: []graph.TensorID{0}, Outputs: []graph.TensorID{4}}}},
		{Name: "yes", Results: []graph.TensorID{2}, Nodes: []graph.Node{{Op: &graph.Unary{Fn: graph.Relu}, Inputs: []graph.TensorID{1}, Outputs: []graph.TensorID{2}}}},
		{Name: "no", Results: []graph.TensorID{3}, Nodes: []graph.Node{{Op: &graph.Unary{Fn: graph.Neg}, Inputs: []graph.TensorID{1}, Outputs: []graph.TensorID{3}}}},
	}
	e.Streams = []graph.Stream{{Handle: "cond", Type: b}, {Handle: "x", Type: f}, {Handle: "y", Direction: graph.DeviceToHost, Type: f}}
	e.Programs = []graph.Program{{Index: 5, Steps: []graph.Step{{Kind: graph.CopyIn}, {Kind: graph.CopyIn, Stream: 1, Tensor: 1}, {Kind: graph.Call}, {Kind: graph.CopyOut, Stream: 2, Tensor: 4}}}}
	require.NoError(t, graph.Verify(e))
	d, err := draw(e, nil)
	require.NoError(t, err)
	require.Equal(t, strings.TrimLeft(`
cond | input  bool[]
x | input  f32[2]
If | choice
  then | 1 operator | Relu
    Relu
    results | yes
  else | 1 operator | Neg
    Neg
    results | no
y | output  f32[2]
`, "\n"), outline(d.root, ""))
	for _, folded := range []bool{true, false} {
		for _, b := range d.boxes[1:] {
			b.folded = folded && b.Group
		}
		checkDrawing(t, d)
	}
}

// checkDrawing wants boxes apart and inside of their groups, edges that go
// down, and shapes beside edges that meet neither boxes nor each other.
func checkDrawing(t require.TestingT, d *drawing) {
	c := &canvas{seen: seen{}}
	var visit func(b *box)
	visit = func(b *box) {
		in := c.seen.inside(b)
		meets := func(x, y, w, h float64, q seat) bool {
			return x < q.x+q.w-0.6 && q.x < x+w-0.6 && y < q.y+q.h && q.y < y+h
		}
		for i, p := range in.seats {
			require.GreaterOrEqual(t, p.x, -0.6)
			require.LessOrEqual(t, p.x+p.w, in.w+0.6)
			require.LessOrEqual(t, p.y+p.h, in.h+0.1)
			for k, q := range in.seats[:i] {
				require.False(t, meets(p.x, p.y, p.w, p.h, q), "%s and %s overlap", b.Kids[i].Title, b.Kids[k].Title)
			}
			title, lines, name := b.Kids[i].shows()
			for _, l := range append(lines, title, name) {
				require.LessOrEqual(t, float64(columns(l))*columnWidth+leafPad, p.w+0.1, l)
			}
		}
		for _, l := range b.frame.links {
			require.Less(t, in.row[l.from], in.row[l.to])
			if l.from < len(in.seats) && l.to < len(in.seats) {
				require.Less(t, in.seats[l.from].y+in.seats[l.from].h, in.seats[l.to].y)
			}
		}
		var shapes []seat
		for i, tag := range c.tags(b, in) {
			e := b.frame.exits[i]
			if b.Kids[e.from].frame == nil {
				require.True(t, tag.shown, "an operator has room for the shape of its result")
			}
			if !tag.shown {
				continue
			}
			s := seat{tag.x, tag.y - 9, e.width, 11}
			for k, q := range in.seats {
				require.False(t, meets(s.x, s.y, s.w, s.h, q), "the shape %s meets %s", e.text, b.Kids[k].Title)
			}
			for _, q := range shapes {
				require.False(t, meets(s.x, s.y, s.w, s.h, q), "the shape %s meets another", e.text)
			}
			shapes = append(shapes, s)
		}
		for _, k := range b.Kids {
			if k.frame != nil && !k.folded {
				visit(k)
			}
		}
	}
	visit(d.root)
}

// Random graphs, names and folds: boxes never overlap, edges go down, and
// every operator is drawn once.
func TestDrawingProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := graph.TensorType{DType: graph.F32, Shape: []int64{4}}
		n := rapid.IntRange(1, 60).Draw(t, "nodes")
		e := &graph.Executable{Name: "random", Tensors: []graph.Tensor{{Name: "x", Type: typ}}}
		g := graph.Graph{Name: "main"}
		weight := func(i int) graph.TensorID { return graph.TensorID(n + 1 + i) }
		names := rapid.SampledFrom([]string{"", "a/b/x", "a/b/y", "a/c/z", "a/d", "b/e", "b/f/g/h", "conv_1", "p.q.r", "p.q.s", "Add.2", "block_3_a/x", "0/0.1/y"})
		for i := range n {
			back := func(what string) graph.TensorID { return graph.TensorID(rapid.IntRange(max(0, i-15), i).Draw(t, what)) }
			e.Tensors = append(e.Tensors, graph.Tensor{Name: fmt.Sprint("t", i), Type: typ})
			node := graph.Node{Op: &graph.Binary{Fn: graph.Add}, Name: names.Draw(t, "name"), Inputs: []graph.TensorID{back("a"), back("b")}, Outputs: []graph.TensorID{graph.TensorID(i + 1)}}
			if rapid.Bool().Draw(t, "unary") {
				node.Op, node.Inputs = &graph.Unary{Fn: graph.Relu}, node.Inputs[:1]
			}
			for k := range node.Inputs { // some compute weights alone
				if rapid.IntRange(0, 3).Draw(t, "weight") == 0 {
					node.Inputs[k] = weight(rapid.IntRange(0, 4).Draw(t, "which"))
				}
			}
			g.Nodes = append(g.Nodes, node)
		}
		// Two constants, two weights that a program loads, one that it computes.
		for i := range 5 {
			w := graph.Tensor{Name: fmt.Sprintf("net.%d.weight", i), Type: typ, Const: i < 2, Persistent: i >= 2}
			if w.Const {
				w.Data = make([]byte, 16)
			}
			e.Tensors = append(e.Tensors, w)
		}
		prepare := graph.Graph{Name: "prepare", Nodes: []graph.Node{{Op: &graph.Unary{Fn: graph.Neg}, Name: "prepare", Inputs: []graph.TensorID{weight(2)}, Outputs: []graph.TensorID{weight(4)}}}}
		e.Graphs = []graph.Graph{g, prepare}
		e.Streams = []graph.Stream{{Handle: "x", Type: typ}, {Handle: "y", Direction: graph.DeviceToHost, Type: typ}, {Handle: "w2", Type: typ}, {Handle: "w3", Type: typ}}
		e.Programs = []graph.Program{
			{Index: 0, Steps: []graph.Step{{Kind: graph.CopyIn, Stream: 2, Tensor: weight(2)}, {Kind: graph.CopyIn, Stream: 3, Tensor: weight(3)}, {Kind: graph.Call, Graph: 1}}},
			{Index: 5, Steps: []graph.Step{{Kind: graph.CopyIn}, {Kind: graph.Call}, {Kind: graph.CopyOut, Stream: 1, Tensor: graph.TensorID(n)}}},
		}
		require.NoError(t, graph.Verify(e))
		d, err := draw(e, nil)
		require.NoError(t, err)
		stands := map[int]int{}
		for _, b := range d.boxes {
			if b.node >= 0 {
				require.EqualValues(t, 0, b.graph, "what a load program computes is no box")
				stands[b.node]++
			}
			if b.Family == "anchor" {
				require.Contains(t, []string{"x", "y"}, b.Name, "weights are no boxes")
			}
		}
		for k, b := range d.absorbed {
			require.NotNil(t, b)
			for _, in := range g.Nodes[k.index].Inputs {
				require.NotEqual(t, graph.TensorID(0), in, "what reads an input is a box of its own")
			}
			stands[k.index]++
		}
		require.Len(t, stands, n, "every operator is drawn, or stands in one that is")
		for i, times := range stands {
			require.Equal(t, 1, times, "operator %d", i)
		}
		for _, l := range d.edges {
			require.True(t, l.from.node >= 0 || l.from.Family == "anchor")
		}
		checkDrawing(t, d)
		for _, b := range d.boxes[1:] {
			b.folded = b.Group && rapid.Bool().Draw(t, "folded")
		}
		checkDrawing(t, d)
	})
}

func wellFormed(t *testing.T, s string) {
	for d := xml.NewDecoder(strings.NewReader(s)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestSVG(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteSVG(&b, digits(t).Executable, nil))
	wellFormed(t, b.String())
	require.Contains(t, b.String(), ">MaxPool<")
	require.NotContains(t, b.String(), "display=\"none\"", "nothing is folded")

	blob, err := hostileOptions(t).Model.Model.Executable()
	require.NoError(t, err)
	e, err := encoding.Decode(blob)
	require.NoError(t, err)
	b.Reset()
	require.NoError(t, WriteSVG(&b, e, nil))
	wellFormed(t, b.String())
	require.NotContains(t, b.String(), "<script")
	require.NotContains(t, b.String(), "<img")
	require.NotContains(t, b.String(), "<iframe")

	b.Reset()
	require.NoError(t, WriteDOT(&b, e, nil))
	// Strings end where they should: outside of them there is nothing but the language.
	outside := regexp.MustCompile(`"(\\.|[^"\\])*"`).ReplaceAllString(b.String(), "S")
	require.NotContains(t, outside, "owned")
	require.Regexp(t, `^digraph S \{\n(\s*(node|edge|n\d+|n\d+ -> n\d+) \[[^\]]*\];\n|\s*subgraph cluster_\d+ \{\n|\s*label=S;\n|\s*\}\n)+$`, outside)
}

func TestHostileNames(t *testing.T) {
	page := written(t, hostileOptions(t))
	for _, s := range []string{"<script>window", "<img", "<iframe", "<b>", "onerror=window.owned=1>", "</style><script"} {
		if i := strings.Index(page, s); i >= 0 {
			t.Errorf("%q stands in the page: …%s…", s, page[max(0, i-80):min(len(page), i+80)])
		}
	}
	require.Equal(t, 2, strings.Count(page, "<script"))
	require.Equal(t, 2, strings.Count(page, "</script>"))
}

func TestPoplarModel(t *testing.T) {
	m := popeftest.ModelA().Load(t)
	page := written(t, Options{Model: Model{Name: "a.popef", Model: m}})
	require.Contains(t, page, "known to its own runtime alone")
	require.Contains(t, page, "init_input")
	require.Contains(t, page, "class=\"hist\"")
}

func f32s(v ...float32) []byte {
	var out []byte
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

func TestWeights(t *testing.T) {
	w := weight{dtype: graph.F32, data: f32s(0, 1, 2, 3, float32(math.Inf(1)), 0)}
	w.describe()
	require.Equal(t, []string{"0", "3", "1.2", "1.17", "33.3 %", "1 of 6 are NaN or infinite"}, []string{w.Min, w.Max, w.Mean, w.Dev, w.Zeros, w.Odd})
	require.Contains(t, string(w.Hist), "from 0 to 3")
	for _, odd := range []weight{{dtype: graph.F32}, {dtype: graph.F32, data: f32s(float32(math.NaN()))}, {dtype: graph.I8, data: []byte{255}}, {dtype: graph.Invalid, data: []byte{1}},
		{dtype: graph.F64, data: binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, math.Float64bits(math.MaxFloat64)), math.Float64bits(-math.MaxFloat64))}} {
		odd.describe()
		wellFormed(t, string(odd.Hist))
	}
	for k, want := range map[graph.DType]float64{graph.I8: -2, graph.U8: 254, graph.I16: -258, graph.U16: 65278, graph.Bool: 254} {
		var got []float64
		elements(k, []byte{0xfe, 0xfe}[:k.Size()], func(v float64) { got = append(got, v) })
		require.Equal(t, []float64{want}, got, k)
	}

	old := []weight{{Name: "a", Type: "f32[2]", dtype: graph.F32, data: f32s(1, 1)}, {Name: "gone"}, {Name: "same", data: []byte{1}}}
	new := []weight{{Name: "a", Type: "f32[2]", dtype: graph.F32, data: f32s(1, 2)}, {Name: "new"}, {Name: "same", data: []byte{1}}}
	require.Equal(t, 3, compareWeights(old, new))
	require.Equal(t, "moved by 0.707 (root mean square), at most 1; 70.7 % of what it was", new[0].Note)
	require.Equal(t, []string{"changed", "removed", ""}, []string{old[0].Mark, old[1].Mark, old[2].Mark})
}

func TestProfile(t *testing.T) {
	m := digitsModel(t)
	b := profileOf(t, m)
	require.Contains(t, written(t, Options{Model: m, Bench: b}), "colour by time")
	b.Profile.Nodes[1].Name = "of another model"
	require.ErrorIs(t, Write(io.Discard, Options{Model: m, Bench: b}), ErrProfile)
	b.Profile.Nodes[1].Step = 1 << 40
	require.ErrorIs(t, Write(io.Discard, Options{Model: m, Bench: b}), ErrProfile)
	for _, s := range []string{"", "{}", `{"profile": 3}`, `{"profile": null}`} {
		_, err := ReadBench(strings.NewReader(s))
		require.ErrorIs(t, err, ErrProfile, s)
	}
}

func TestTooLarge(t *testing.T) {
	e := residual(1, 10, flat)
	for len(e.Graphs[0].Nodes) <= maxNodes {
		e.Graphs[0].Nodes = append(e.Graphs[0].Nodes, e.Graphs[0].Nodes...)
	}
	require.ErrorContains(t, WriteSVG(io.Discard, e, nil), "at most 20000")
}

// As many operators as are drawn at most make a page of bounded size, most of
// which is drawn once it is asked for.
func TestManyOperators(t *testing.T) {
	page := written(t, Options{Model: Model{Name: "m", Model: modelOf(t, residual(maxNodes/6-1, 10, flat))}})
	require.Less(t, len(page), 12_000_000)
	require.Less(t, strings.Count(page, "class=\"box "), 2*visibleBoxes)
	require.Equal(t, maxBuffers, strings.Count(page, "class=\"buffer "))
	require.Contains(t, page, "of which the 4000 largest are drawn")
}

// A file may list programs without end; a page names some of them.
func TestManyPrograms(t *testing.T) {
	f := popeftest.ModelA()
	for i := range uint32(1 << 16) {
		f.Metadata.ProgramFlow.Main = append(f.Metadata.ProgramFlow.Main, 100+i)
		f.Metadata.Anchors[0].Programs = append(f.Metadata.Anchors[0].Programs, 100+i)
	}
	page := written(t, Options{Model: Model{Name: "a.popef", Model: f.Load(t)}})
	require.Less(t, len(page), 1_000_000)
	require.Equal(t, len(f.Metadata.ProgramFlow.Load)+maxPrograms+len(f.Metadata.ProgramFlow.Save), strings.Count(page, `<div class="program"><strong>`))
	require.Contains(t, page, fmt.Sprintf(`<div class="program none">and %d more</div>`, len(f.Metadata.ProgramFlow.Main)-maxPrograms))
}

// A file may use one long name for everything; a page must not repeat it.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("long/", 200_000)
	e := residual(30, 10, func(int, string) string { return long })
	for i := range e.Tensors {
		e.Tensors[i].Name = long
	}
	page := written(t, Options{Model: Model{Name: "m", Model: modelOf(t, e)}})
	require.Less(t, len(page), 3_000_000)
	path, _ := splitName(long)
	require.Less(t, len(path), 40)
}

func TestTicks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.Int64Range(0, 1<<50).Draw(t, "most")
		n := rapid.Int64Range(1, 12).Draw(t, "n")
		got := ticks(most, n)
		require.LessOrEqual(t, len(got), int(n)+1)
		require.LessOrEqual(t, got[len(got)-1], most)
	})
	require.Equal(t, []int64{0, 2, 4, 6, 8, 10, 12}, ticks(12, 8))
}

func TestElide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text")
		got := elide(s)
		require.LessOrEqual(t, columns(got), maxColumns)
		if columns(printable(s)) <= maxColumns {
			require.Equal(t, printable(s), got)
		}
	})
	require.Equal(t, "abcdefghijklmnopq…3456789012345678", elide("abcdefghijklmnopqrstuvwxyz0123456789012345678"))
}

// FuzzText: no name can leave the place where it stands.
func FuzzText(f *testing.F) {
	for _, n := range hostileNames {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, s string) {
		wellFormed(t, "<a b=\""+text(s)+"\">"+text(s)+"</a>")
		require.NotContains(t, text(s), "<")
		if q := dotString(s); strings.Count(regexp.MustCompile(`\\.`).ReplaceAllString(q, ""), `"`) != 2 {
			t.Errorf("%q ends before its end", q)
		}
		j, err := json.Marshal(printable(s))
		require.NoError(t, err)
		require.NotContains(t, string(j), "</")
	})
}

func BenchmarkLay(b *testing.B) {
	e := residual(120, 10, flat)
	b.ReportMetric(float64(operators(e)), "operators")
	for b.Loop() {
		if _, err := draw(e, nil); err != nil {
			b.Fatal(err)
		}
	}
}
