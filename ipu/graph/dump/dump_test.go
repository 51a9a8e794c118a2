package dump

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph/encoding"
)

func TestDump(t *testing.T) {
	encoded, err := os.ReadFile("../encoding/testdata/sample-v2.bin")
	require.NoError(t, err)
	sample, err := encoding.Decode(encoded)
	require.NoError(t, err)
	require.Equal(t, `executable "sample", made by "graph test"
streams: 4
  "count" device-to-host f32[]
  "w" host-to-device f32[3,4]
  "x" host-to-device f32[2,3]
  "y" device-to-host f16[2,1]
programs: 3
  0 "load"
    %1:w <- "w"
  1 "main"
    repeat 3 times
      %0:x <- "x"
      call graph 0 "main"
      %10:half -> "y"
  7 "save"
    %2:count -> "count"
constants: 3, 20 bytes
  %3:bias f32[4], 16 bytes
  %4:one f32[], 4 bytes
  %5:none f32[0,7], 0 bytes
persistent: 2, 52 bytes
  %1:w f32[3,4], 48 bytes
  %2:count f32[], 4 bytes
graphs: 1
  graph 0 "main", 10 nodes
    %6:gemm = Gemm(%0:x, %1:w, %3:bias) f32[2,4]; beta 0.5  # gemm
    %7:act = Unary(%6:gemm) f32[2,4]; fn leaky_relu, alpha 0.25  # act
    %8:max = Reduce(%7:act) f32[2,1]; fn max, axes 1, keep dims yes  # max
    %9:clip = Clip(%8:max, -, %4:one) f32[2,1]  # clip
    %10:half = Cast(%9:clip) f16[2,1]; to f16  # half
    %11:seq = Expand(%0:x) f32[1,2,3]; shape 1,2,3  # seq
    %12:lw = Expand(%4:one) f32[1,4,3]; shape 1,4,3  # lw
    %13:lr = Expand(%4:one) f32[1,4,1]; shape 1,4,1  # lr
    %14:lstm, %15:lstm:1, %16:lstm:2 = LSTM(%11:seq, %12:lw, %13:lr) f32[1,1,2,1], f32[1,2,1], f32[1,2,1]; hidden 1, direction forward, activations Sigmoid, Tanh, Tanh, act alpha 0,1,2, act beta 0,0,0  # lstm
    %2:count = Binary(%2:count, %4:one) f32[]; fn add  # tick
`, String(sample))
	require.Equal(t, `"a b"`, quoteOdd("a b"))
	require.Equal(t, `"a\nb"`, quoteOdd("a\nb"))
	require.Equal(t, `""`, quoteOdd(""))
}
