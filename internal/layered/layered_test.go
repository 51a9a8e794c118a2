package layered

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func drawGraph(t *rapid.T) Graph {
	n := rapid.IntRange(1, 40).Draw(t, "boxes")
	g := Graph{Widths: make([]float64, n)}
	for i := range g.Widths {
		g.Widths[i] = rapid.Float64Range(0, 300).Draw(t, "width")
	}
	top, bottom := map[int]bool{}, map[int]bool{}
	for i := range min(n, rapid.IntRange(0, 2).Draw(t, "top")) {
		g.Top = append(g.Top, i)
		top[i] = true
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "bottom") {
		if b := n - 1 - i; b >= 0 && !top[b] {
			g.Bottom = append(g.Bottom, b)
			bottom[b] = true
		}
	}
	for range rapid.IntRange(0, 80).Draw(t, "edges") {
		a := rapid.IntRange(0, n-1).Draw(t, "from")
		b := rapid.IntRange(0, n-1).Draw(t, "to")
		if a < b && !top[b] && !bottom[a] {
			g.Edges = append(g.Edges, [2]int{a, b})
		}
	}
	if rapid.Bool().Draw(t, "ends") {
		for _, e := range g.Edges {
			aside := func(b int) float64 { return g.Widths[b] * rapid.Float64Range(-0.5, 0.5).Draw(t, "aside") }
			g.Ends = append(g.Ends, [2]float64{aside(e[0]), aside(e[1])})
		}
	}
	return g
}

func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t)
		l, err := Lay(g)
		require.NoError(t, err)
		again, err := Lay(g)
		require.NoError(t, err)
		require.Equal(t, l, again, "the same graph, the same layout")

		row := map[int]int{}
		for r, items := range l.Rows {
			require.NotEmpty(t, items)
			for i, b := range items {
				require.NotContains(t, row, b, "a box stands once")
				row[b] = r
				if i > 0 {
					a := items[i-1]
					require.GreaterOrEqual(t, l.X[b]-width(g, b)/2, l.X[a]+width(g, a)/2, "row %d: %d and %d overlap", r, a, b)
				}
			}
		}
		require.Len(t, row, len(l.X))
		for i, e := range g.Edges {
			path := append(append([]int{e[0]}, l.Chains[i]...), e[1])
			for k := 1; k < len(path); k++ {
				require.Equal(t, row[path[k-1]]+1, row[path[k]], "edge %v goes down, row by row: %v", e, path)
			}
		}
		for b := range g.Widths {
			require.GreaterOrEqual(t, l.X[b]-width(g, b)/2, -0.5)
			require.LessOrEqual(t, l.X[b]+width(g, b)/2, l.Width+0.5)
		}
		if len(g.Top) > 0 {
			require.Equal(t, g.Top, l.Rows[0])
		}
		if len(g.Bottom) > 0 {
			require.Equal(t, g.Bottom, l.Rows[len(l.Rows)-1])
		}
	})
}

func width(g Graph, i int) float64 {
	if i < len(g.Widths) {
		return g.Widths[i]
	}
	return 0
}

func TestLay(t *testing.T) {
	// A residual block: its way around passes two rows at one straight line.
	l, err := Lay(Graph{Widths: []float64{100, 100, 100, 100}, Edges: [][2]int{{0, 1}, {1, 2}, {2, 3}, {0, 3}}})
	require.NoError(t, err)
	require.Equal(t, 4, len(l.Rows))
	require.Len(t, l.Chains[3], 2)
	require.InDelta(t, l.X[l.Chains[3][0]], l.X[l.Chains[3][1]], 2)
	require.InDelta(t, l.X[1], l.X[2], 2)

	// What is read far down stands just above its reader.
	l, err = Lay(Graph{Widths: []float64{10, 10, 10, 10}, Edges: [][2]int{{0, 2}, {2, 3}, {1, 3}}})
	require.NoError(t, err)
	require.Contains(t, l.Rows[1], 1)

	// Crossings that need not be are not.
	l, err = Lay(Graph{Widths: []float64{10, 10, 10, 10}, Edges: [][2]int{{0, 3}, {1, 2}}})
	require.NoError(t, err)
	require.Equal(t, l.X[0] < l.X[1], l.X[3] < l.X[2])

	_, err = Lay(Graph{Widths: []float64{1, 1}, Edges: [][2]int{{1, 0}}})
	require.ErrorContains(t, err, "from a lower to a higher index")
	l, err = Lay(Graph{})
	require.NoError(t, err)
	require.Zero(t, l.Width)
}

// An edge that does not start or end in the middle of its boxes is straight
// where there is room.
func TestEnds(t *testing.T) {
	l, err := Lay(Graph{Widths: []float64{400, 50, 60, 300}, Edges: [][2]int{{0, 1}, {1, 2}, {2, 3}}, Ends: [][2]float64{{-120, 0}, {0, 0}, {0, 90}}})
	require.NoError(t, err)
	require.InDelta(t, l.X[0]-120, l.X[1], 1)
	require.InDelta(t, l.X[1], l.X[2], 1)
	require.InDelta(t, l.X[2], l.X[3]+90, 1)
	_, err = Lay(Graph{Widths: []float64{1, 1}, Edges: [][2]int{{0, 1}}, Ends: [][2]float64{}})
	require.ErrorContains(t, err, "want as many")
}
