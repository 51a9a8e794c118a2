package page

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/chromium"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
)

// batches compiles the example for batches of up to n.
func batches(t testing.TB, n int64) Model {
	m, err := onnx.ReadFile("../../../../generated_examples/digits/digits.onnx")
	require.NoError(t, err)
	var o compile.Options
	for i := range n {
		o.Members = append(o.Members, compile.Sizes{Batch: i + 1})
	}
	return compiled(t, m, o)
}

func compiled(t testing.TB, m *onnx.Model, o compile.Options) Model {
	r, err := compile.Compile(m, o)
	require.NoError(t, err)
	out, err := r.Model("family.popef")
	require.NoError(t, err)
	return Model{Name: "family.popef", Model: out}
}

// turned is a model whose middle is another operator where N is 1.
func turned() *onnx.Model {
	node := func(op, in, out string) *onnx.Node {
		return &onnx.Node{OpType: op, Name: op, Inputs: []string{in}, Outputs: []string{out}}
	}
	x := onnx.ValueInfo{Name: "x", Elem: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Symbol: "N"}, {Known: true, Value: 4}}}
	g := &onnx.Graph{Name: "turned", Inputs: []onnx.ValueInfo{x}, Outputs: []onnx.ValueInfo{{Name: "y"}}, Nodes: []*onnx.Node{node("Transpose", "x", "a"), node("Softmax", "a", "y")}}
	return &onnx.Model{IRVersion: 8, Opsets: []onnx.Opset{{Version: 17}}, Graph: g}
}

// told is what a page's script knows of a view.
type told struct {
	ID    string           `json:"id"`
	Boxes []map[string]any `json:"boxes"`
	Vary  []varied         `json:"vary"`
}

func toldBy(t *testing.T, page string) (all []told) {
	data := regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`).FindStringSubmatch(page)
	require.Len(t, data, 2)
	require.NoError(t, json.Unmarshal([]byte(data[1]), &all))
	return all
}

// shapesOf lists the shapes and types that a drawing shows anywhere.
func shapesOf(d *drawing) (all []string) {
	for _, b := range d.boxes {
		all = append(all, b.Type)
		for _, o := range slices.Concat(b.Detail.In, b.Detail.Out) {
			all = append(all, o.Type)
		}
		if b.frame != nil {
			for _, e := range b.frame.exits {
				all = append(all, e.text)
			}
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(s string) bool { return s == "" })
}

// One drawing serves all members that differ in sizes: the page of eight is
// about as large as that of one, and tells of every shape of each of them.
func TestFamilyHasOneDrawing(t *testing.T) {
	one, m := written(t, Options{Model: batches(t, 1)}), batches(t, 8)
	page := written(t, Options{Model: m})
	require.Equal(t, page, written(t, Options{Model: m}))
	require.Equal(t, 1, strings.Count(page, `<svg class="graph"`))
	require.Equal(t, 8, strings.Count(page, `role="tab"`))
	require.Equal(t, 8, strings.Count(page, `data-tab="tab-view0a-`))
	require.Less(t, float64(len(page)), 1.5*float64(len(one)))
	t.Logf("one member: %d bytes, eight: %d", len(one), len(page))

	blob, err := m.Model.Executable()
	require.NoError(t, err)
	exe, err := encoding.Decode(blob)
	require.NoError(t, err)
	s, err := newSheet(m, "", true)
	require.NoError(t, err)
	shared := toldBy(t, page)
	require.Len(t, shared, 1)
	for k := range s.family.Members {
		d := newDrawing(onlyMember(s.family, exe, k), Anchors(m.Model))
		require.NoError(t, d.lay())
		require.Contains(t, strings.Join(shapesOf(d), " "), fmt.Sprintf("f32[%d,32,8,8]", k+1))
		for _, shape := range shapesOf(d) {
			require.Contains(t, page, strings.Trim(string(must(json.Marshal(shape))), `"`))
		}
		// What the page says of the member is what a drawing of its own says, at every place.
		says := map[string]string{}
		for _, v := range shared[0].Vary {
			require.Len(t, v.Values, 8)
			for place, boxes := range v.At {
				for _, b := range boxes {
					says[strconv.Itoa(b)+place] = string(must(json.Marshal(v.Values[k])))
				}
			}
		}
		own := map[string]string{}
		d.places(func(box int, place string, value any) {
			at := strconv.Itoa(box) + place
			if text := string(must(json.Marshal(value))); says[at] != "" {
				own[at] = text
			} else { // as in the first
				s.shown.boxes[box].expect(t, place, text)
			}
		})
		require.Empty(t, cmp.Diff(own, says))
	}
}

// expect wants a box of the first member to say what another one does.
func (b *box) expect(t *testing.T, place, want string) {
	data := b.data()
	switch place {
	case "y":
		require.Equal(t, want, string(must(json.Marshal(data.Type))))
	case "n":
		require.Equal(t, want, string(must(json.Marshal(data.Name))))
	case "f":
		require.Equal(t, want, string(must(json.Marshal(b.Detail.FLOPs))))
	case "w":
		require.Equal(t, want, string(must(json.Marshal(b.Detail.Weights))))
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// A member with other operators keeps a drawing of its own.
func TestFamilyOfOtherOperators(t *testing.T) {
	o := compile.Options{}
	for _, n := range []int64{1, 2, 3} {
		o.Members = append(o.Members, compile.Sizes{Dims: map[string]int64{"N": n}})
	}
	page := written(t, Options{Model: compiled(t, turned(), o)})
	require.Equal(t, 2, strings.Count(page, `<svg class="graph"`))
	var tabs []string
	for _, m := range regexp.MustCompile(`data-view="(view0.)" data-member="(\d)"`).FindAllStringSubmatch(page, -1) {
		tabs = append(tabs, m[1]+" "+m[2])
	}
	require.Equal(t, []string{"view0a 0", "view0b 0", "view0b 1"}, tabs)
	all := toldBy(t, page)
	require.Empty(t, all[0].Vary)
	require.NotEmpty(t, all[1].Vary)
	require.Equal(t, 2, strings.Count(page, `<figcaption>`), "memory of each drawing's largest member")
}

func TestAlike(t *testing.T) {
	changed := residual(3, 10, slashed)
	changed.Graphs[0].Nodes[1].Op = &graph.Unary{Fn: graph.Tanh}
	base := newDrawing(residual(3, 10, slashed), nil)
	require.True(t, alike(base, newDrawing(residual(3, 11, slashed), nil)), "another number of classes")
	require.False(t, alike(base, newDrawing(changed, nil)), "another operator")
	require.False(t, alike(base, newDrawing(residual(4, 10, slashed), nil)), "more operators")
	turned := residual(3, 10, slashed)
	last := &turned.Graphs[0].Nodes[len(turned.Graphs[0].Nodes)-2]
	first := turned.Graphs[0].Nodes[0].Outputs[0]
	for i := range last.Inputs {
		last.Inputs[i] = first
	}
	require.False(t, alike(base, newDrawing(turned, nil)), "other edges")
}

// A tab puts a member's sizes into the drawing, where it is unfolded already and
// where it is not; the first one's come back.
func TestFamilyInChromium(t *testing.T) {
	b := chromium.New(t)
	b.Open("file://"+file(t, Options{Model: batches(t, 8)}), 1400, 900)
	texts := `[...popefgenViewers.get('view0a').svg.querySelectorAll('text')].map(e => e.textContent).join('|')`
	var first, third, again string
	b.Eval(texts, &first)
	b.Eval(`document.getElementById('tab-view0a-2').click()`, nil)
	b.Eval(texts, &third)
	require.Contains(t, first, "input  f32[1,1,8,8]")
	require.Contains(t, third, "input  f32[3,1,8,8]")
	require.NotContains(t, third, "f32[1,")
	require.Equal(t, strings.Count(first, "|"), strings.Count(third, "|"))
	b.Screenshot("family-third")
	b.Eval(`document.querySelector('[data-tab=tab-view0a-0]').click()`, nil)
	b.Eval(texts, &again)
	require.Equal(t, first, again)
	require.Empty(t, b.Errors)
}
