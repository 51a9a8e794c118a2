package verify

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
)

// imageOperators match public tests of operators that know layouts of images.
var imageOperators = regexp.MustCompile("(?i)conv|pool|resize|upsample|norm|depth|shuffle|reduce_mean|concat|pad|qlinear")

// TestLayoutOnPublicModels shows that NCHWc and NHWC change no bit of what
// public models answer. Of the tests of operators that know no images it takes
// an eighth.
func TestLayoutOnPublicModels(t *testing.T) {
	data := testData(t)
	cases, err := Find([]string{filepath.Join(data, "models"), filepath.Join(data, "data", "onnx-node-tests"), filepath.Join(data, "data", "onnx-model-tests")}, true)
	require.NoError(t, err)
	both := func(ctx context.Context, m *popef.Model, inputs map[string][]byte) (map[string][]byte, error) {
		want, err := executeWith(ctx, m, inputs, rt.WithEngineOption("layout", "off"))
		if err != nil {
			return nil, err
		}
		got, err := executeWith(ctx, m, inputs, rt.WithEngineOption("layout", "on"))
		for name := range want {
			if err == nil && !bytes.Equal(got[name], want[name]) {
				err = fmt.Errorf("output %q differs with NCHWc or NHWC", name)
			}
		}
		return got, err
	}
	for i, c := range cases {
		if i%8 != 0 && strings.Contains(c.Dir, "onnx-node-tests") && !imageOperators.MatchString(filepath.Base(c.Dir)) && !everything {
			continue
		}
		c.Sets = c.Sets[:1]
		results, err := Run(context.Background(), c, Options{Tolerance: tolerance(c), Execute: both})
		require.NoError(t, err)
		require.NotEqual(t, Fail, results[0].Verdict, "%s: %s", results[0].Set, results[0].Reason)
	}
}
