package npy

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFileName(t *testing.T) {
	for in, want := range map[string]string{
		"logits": "logits.npy", "fc/fc/Gemm:0": "fc_fc_Gemm_0.npy", "": "_.npy", "..": "_...npy", "größe": "gr__e.npy",
	} {
		require.Equal(t, want, FileName(in, ".npy"), in)
	}
	long := strings.Repeat("block/", 60)
	require.LessOrEqual(t, len(FileName(long, ".npy")), 255)
	require.NotEqual(t, FileName(long+"a"+long, ".npy"), FileName(long+"b"+long, ".npy"))
}

func FuzzReadArray(f *testing.F) {
	f.Add([]byte(magic + "\x01\x00\x40\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }       \n\x00\x00\x80\x3f"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := ReadArray(bytes.NewReader(b), 100)
		if err == nil && len(a.Data) > 101 {
			t.Errorf("read %d bytes, limit 100", len(a.Data))
		}
	})
}
