package gen

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/popeftest"
)

// manyAnchors is a model with n inputs and outputs.
func manyAnchors(t *testing.T, n int, name func(i int) string) *popef.Model {
	f := popeftest.ModelA()
	some := f.Metadata.Anchors[2:4]
	f.Metadata.Anchors, f.Tensors = nil, nil
	for i := range n {
		a := some[i%len(some)]
		a.Name, a.Handle = name(i), fmt.Sprintf("%s_%d", a.Handle, i)
		f.Metadata.Anchors = append(f.Metadata.Anchors, a)
	}
	return f.Load(t)
}

// TestManyAnchors generates packages of many anchors, whatever they are called:
// four times as many must take about four times as much.
func TestManyAnchors(t *testing.T) {
	for what, name := range map[string]func(i int) string{
		"numbered":       func(i int) string { return fmt.Sprintf("input_%d", i) },
		"of one Go name": func(i int) string { return "a" + strings.Repeat("-", i) },
		"of no Go name":  func(i int) string { return strings.Repeat("\u4e16", 1+i%40) + fmt.Sprint(i) },
		"that end alike": func(i int) string { return fmt.Sprintf("a%d", i%7) + strings.Repeat("_", i) },
	} {
		t.Run(what, func(t *testing.T) {
			work := func(n int) (allocations float64) {
				m := manyAnchors(t, n, name)
				return testing.AllocsPerRun(1, func() {
					p, err := Build(m, Options{})
					require.NoError(t, err)
					require.Len(t, p.Inputs, n/2)
					_, err = Emit(p)
					require.NoError(t, err)
				})
			}
			few, many := work(100), work(400)
			require.Less(t, many, 6*few)
		})
	}
}
