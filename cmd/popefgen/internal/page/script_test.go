package page

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/chromium"
	"github.com/popefgen/popefgen/ipu/graph"
)

var decimals = regexp.MustCompile(`-?\d+\.\d+`)

// rounded rounds the numbers in text to tenths.
func rounded(s string) string {
	return decimals.ReplaceAllStringFunc(s, func(n string) string {
		v, _ := strconv.ParseFloat(n, 64)
		return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
	})
}

// parts lists the boxes, edges and texts of a picture, in its order.
func parts(t *testing.T, picture string) (all []string) {
	d := xml.NewDecoder(strings.NewReader(picture))
	text := -1
	for {
		token, err := d.Token()
		if err == io.EOF {
			return all
		}
		require.NoError(t, err)
		switch e := token.(type) {
		case xml.StartElement:
			a := map[string]string{}
			for _, x := range e.Attr {
				a[x.Name.Local] = x.Value
			}
			switch {
			case e.Name.Local == "text":
				text = len(all)
				all = append(all, rounded(fmt.Sprintf("text %s %s,%s ", a["class"], a["x"], a["y"])))
			case strings.HasPrefix(a["class"], "box"), strings.HasPrefix(a["class"], "edge"):
				all = append(all, rounded(a["class"]+" "+a["transform"]+a["d"]))
			}
		case xml.EndElement:
			text = -1
		case xml.CharData:
			if text >= 0 {
				all[text] += string(e)
			}
		}
	}
}

// What the script makes of a group that is unfolded is what would have been
// drawn: the same boxes, edges and texts at the same places.
func TestUnfoldedInChromium(t *testing.T) {
	b := chromium.New(t)
	changed := residual(40, 10, slashed)
	changed.Graphs[0].Nodes[9].Op = &graph.Unary{Fn: graph.Tanh}
	for name, e := range map[string]*graph.Executable{"named": pytorch(20, true), "numbered": residual(40, 10, flat), "changed": changed} {
		m := Model{Name: name, Model: modelOf(t, e)}
		o, id := Options{Model: m}, "view0a"
		d := newDrawing(e, Anchors(m.Model))
		if name == "changed" {
			old := residual(40, 10, slashed)
			o.Old, id = &Model{Name: "old", Model: modelOf(t, old)}, "view1a"
			compare(newDrawing(old, nil), d)
		}
		require.NoError(t, d.lay())
		folded := 0
		for _, x := range d.boxes {
			if x.folded {
				folded++
			}
			x.folded = false
		}
		require.Positive(t, folded, name)
		b.Open("file://"+file(t, o), 1000, 700)
		var made []string
		b.Eval(fmt.Sprintf(`(() => { const v = popefgenViewers.get(%q); v.foldAll(false);
			return [...v.svg.querySelectorAll('.box, .edge, text')].filter(e => e.getAttribute('display') !== 'none').map(e => {
				const a = (n) => e.getAttribute(n) || '';
				return e.tagName === 'text' ? 'text ' + a('class') + ' ' + a('x') + ',' + a('y') + ' ' + e.textContent : a('class') + ' ' + a('transform') + a('d');
			}); })()`, id), &made)
		for i := range made {
			made[i] = rounded(made[i])
		}
		require.Empty(t, cmp.Diff(parts(t, d.standalone()), made), name)
		require.Empty(t, b.Errors)
	}
}
