package report

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	tab := NewTable("model", "µs", "ratio")
	tab.Row("a|b", "12.5", "0.90")
	tab.Row("größer", Missing, "1.2")
	want := "" +
		"| model  |   µs | ratio |\n" +
		"|--------|-----:|------:|\n" +
		"| a\\|b   | 12.5 |  0.90 |\n" +
		"| größer |    – |   1.2 |\n"
	if d := cmp.Diff(want, tab.String()); d != "" {
		t.Error(d)
	}
	require.Panics(t, func() { tab.Row("too", "few") })
}

func TestNumbers(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0.00", 0.0421: "0.042", 0.5: "0.50", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 55795: "55795", math.Inf(1): Missing,
	} {
		require.Equal(t, want, Ratio(x), x)
	}
	require.Equal(t, Missing, Ratio(math.NaN()))
	require.Equal(t, "3.46", Time(3456))
	require.Equal(t, "0.97", Share(0.9701))
	require.Equal(t, Missing, Share(math.NaN()))
	require.Equal(t, Missing, Share(math.Inf(1)))
}

func TestReplace(t *testing.T) {
	doc := "# Title\n\n<!-- bench models -->\nold\nrows\n<!-- end models -->\nafter\n"
	got, err := Replace(doc, "models", "new\n")
	require.NoError(t, err)
	require.Equal(t, "# Title\n\n<!-- bench models -->\n\nnew\n\n<!-- end models -->\nafter\n", got)
	again, err := Replace(got, "models", "new")
	require.NoError(t, err)
	require.Equal(t, got, again)

	for _, bad := range []string{"", "<!-- bench models -->\n", "<!-- end models -->\n<!-- bench models -->\n"} {
		_, err := Replace(bad, "models", "new")
		require.ErrorIs(t, err, ErrMarkers, bad)
	}
	_, err = Replace(doc, "kernels", "new")
	require.ErrorContains(t, err, `section "kernels"`)
}

// TestChart checks that the chart is XML whose bars begin or end at the line
// of 1 and whose texts are escaped.
func TestChart(t *testing.T) {
	c := &Chart{Title: "a < b", Axis: "time & time", Series: []string{"one thread", "two threads"}, Bars: []Bar{
		{"fast & small", []float64{0.5, 0.25}}, {"slow", []float64{3, math.NaN()}}, {"none", []float64{math.NaN(), math.NaN()}},
	}}
	bars := map[string][][2]float64{}
	var texts []string
	d := xml.NewDecoder(strings.NewReader(c.SVG()))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		switch e := token.(type) {
		case xml.CharData:
			texts = append(texts, string(e))
		case xml.StartElement:
			var class string
			var x, width float64
			for _, a := range e.Attr {
				switch a.Name.Local {
				case "class":
					class = a.Value
				case "x":
					x = number(t, a.Value)
				case "width":
					if !strings.HasSuffix(a.Value, "%") {
						width = number(t, a.Value)
					}
				}
			}
			if e.Name.Local == "rect" && class != "ground" {
				bars[class] = append(bars[class], [2]float64{x, x + width})
			}
		}
	}
	one := c.scale().x(1)
	require.Len(t, bars["s0"], 3, "the legend and two bars")
	require.Len(t, bars["s1"], 2, "the legend and one bar")
	require.InDelta(t, one, bars["s0"][1][1], 0.2)
	require.InDelta(t, one, bars["s1"][1][1], 0.2)
	require.InDelta(t, one, bars["s0"][2][0], 0.2)
	require.Greater(t, bars["s0"][1][0], bars["s1"][1][0], "0.25 is further left than 0.5")
	require.LessOrEqual(t, bars["s0"][2][1], float64(chartWidth))
	all := strings.Join(texts, "\n")
	for _, want := range []string{"a < b", "time & time", "fast & small", "two threads", "0.50", "3.00"} {
		require.Contains(t, all, want)
	}
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	var v float64
	require.NoError(t, xml.Unmarshal([]byte("<v>"+s+"</v>"), &v), s)
	return v
}
