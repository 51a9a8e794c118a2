package dynamic

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	_ "github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
)

// BenchmarkReady compares what a server does until a file's model is ready, reading a copy of it and one request among it, with what
// a generated package does, which knows beforehand what is decided here: it opens the file, mapped or a copy, and answers one request.
func BenchmarkReady(b *testing.B) {
	for _, name := range []string{"digits", "bert_mlm_small"} {
		b.Run(name, func(b *testing.B) {
			path := filepath.Join("..", "..", "generated_examples", "digits", "classifier", "digits.popef")
			if name != "digits" {
				from := filepath.Join(cmp.Or(os.Getenv("POPEFGEN_TESTDATA"), filepath.Join("..", "..", "..", "shared")), "models", name, "model.onnx")
				if _, err := os.Stat(from); err != nil {
					b.Skip("no public models: ", err)
				}
				m, err := onnx.ReadFile(from)
				require.NoError(b, err)
				r, err := compile.Compile(m, compile.Options{Options: onnx.Options{Dims: map[string]int64{"batch": 1, "tokens": 16}}})
				require.NoError(b, err)
				path = filepath.Join(b.TempDir(), name+".popef")
				data, err := r.Bytes()
				require.NoError(b, err)
				require.NoError(b, os.WriteFile(path, data, 0o644))
			}
			ctx := context.Background()
			of, err := popef.Load(path)
			require.NoError(b, err)
			known, err := shapeOf(ctx, of, &options{name: name})
			require.NoError(b, err)
			require.NoError(b, of.Close())
			one := func(read func(...string) (*popef.Model, error)) func() (*Model, error) {
				return func() (*Model, error) {
					m, err := read(path)
					if err != nil {
						return nil, err
					}
					return known.open(ctx, m, []rt.RunnerOption{rt.WithModelFile(path)}, &options{}, 2, 1)
				}
			}
			ways := map[string]func() (*Model, error){
				"package": one(popef.Load),
				"copied":  one(popef.LoadCopy),
				"ready":   func() (*Model, error) { return Open(ctx, []string{path}, WithReplicas(2), WithCopy()) },
			}
			took := map[string][]time.Duration{}
			for b.Loop() {
				for way, open := range ways {
					begun := time.Now()
					m, err := open()
					require.NoError(b, err)
					require.NoError(b, m.Warm(ctx, ""))
					took[way] = append(took[way], time.Since(begun))
					require.NoError(b, m.Shutdown(ctx))
				}
			}
			middle := func(way string) float64 {
				slices.Sort(took[way])
				return took[way][len(took[way])/2].Seconds()
			}
			b.ReportMetric(middle("ready")/middle("package"), "ready/package")
			b.ReportMetric(middle("ready")/middle("copied"), "ready/copied")
			b.ReportMetric(middle("package")*1e6, "µs/package")
		})
	}
}
