package gen_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/gen"
)

// TestEveryCaseServed generates each golden package with --serve too: it compiles, or is refused by name. With it comes no
// other difference than files.
func TestEveryCaseServed(t *testing.T) {
	refused := map[string]string{
		"types":              "the protocol has no type for elements of F8",
		"error_served":       "the protocol has no type for elements of F8",
		"error_served_fused": "the model is fused",
		"fused":              "the model is fused",
		"empty":              "no run inputs and outputs",
		"names":              `anchor "": clients can not ask`,
	}
	var checker *typeChecker
	for _, c := range cases(t) {
		opts := c.opts
		opts.Serve = false
		plain, err := gen.Build(c.model, opts)
		if err != nil { // what can't be generated at all
			require.FileExists(t, c.fails, c.name)
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			opts.Serve = true
			p, err := gen.Build(c.model, opts)
			why := refused[c.name]
			if plain.Training != nil {
				why = "serve: the model trains"
			}
			if why != "" {
				require.ErrorIs(t, err, gen.ErrBuild)
				require.ErrorContains(t, err, why)
				return
			}
			require.NoError(t, err)
			files, err := gen.Emit(p)
			require.NoError(t, err)
			if checker == nil {
				checker = newTypeChecker(t, []string{"../golden/internal/...", "github.com/popefgen/popefgen/golden/outputs", "github.com/popefgen/popefgen/serve/servetest", "github.com/popefgen/popefgen/ipu", "testing", "flag", "io/fs", "path/filepath", "errors", "os"})
			}
			require.NoError(t, checker.check(p.Package, files))
			require.Len(t, p.Serve.Inputs, len(p.Inputs))
			require.Len(t, p.Serve.Outputs, len(p.Outputs))
			for i, f := range slices.Concat(p.Inputs, p.Outputs) {
				s := slices.Concat(p.Serve.Inputs, p.Serve.Outputs)[i]
				n := int64(1)
				for a, d := range s.Shape {
					if d < 0 {
						d = s.Max[a]
					}
					n *= d
				}
				if tensor := p.Tensors[f.Tensor]; !tensor.IsOpen() {
					require.Equal(t, tensor.Elements*int64(max(1, f.Transfers)), n, "as many elements as the Go type has: %v", s)
				}
			}
			without, err := gen.Emit(plain)
			require.NoError(t, err)
			for _, f := range without {
				same := slices.IndexFunc(files, func(o gen.File) bool { return o.Name == f.Name })
				require.GreaterOrEqual(t, same, 0)
				require.Equal(t, string(f.Data), string(files[same].Data), f.Name)
			}
			for _, f := range files {
				if strings.HasSuffix(f.Name, "_serve.go") {
					require.NotContains(t, string(f.Data), `"net/`)
					require.NotContains(t, string(f.Data), "grpc")
				}
			}
		})
	}
}
