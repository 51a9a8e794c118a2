package kind

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// TestKind tells files by their content.
func TestKind(t *testing.T) {
	digits := filepath.Join("..", "..", "..", "..", "generated_examples", "digits")
	got := map[string]Kind{}
	for name, path := range map[string]string{
		"onnx": filepath.Join(digits, "digits.onnx"), "popef": filepath.Join(digits, "classifier", "digits.popef"),
		"package": filepath.Join(digits, "classifier"), "contract": filepath.Join(digits, "classifier", "contract.txt"),
		"goldens": filepath.Join(digits, "classifier", "testdata", "golden"), "folder": filepath.Join("..", "..", "testdata"), "text": "kind.go", "nothing": "nowhere",
	} {
		got[name] = Of(path)
	}
	models, err := filepath.Glob(filepath.Join("..", "..", "testdata", "mistakes", "*.onnx"))
	require.NoError(t, err)
	for _, m := range models {
		require.Equal(t, ONNX, Of(m), m)
	}
	for name, head := range map[string]string{
		"empty": "", "npy": "\x93NUMPY\x01\x00", "zip": "PK\x03\x04", "gzip": "\x1f\x8b\x08", "tflite": "\x1c\x00\x00\x00TFL3", "lfs": "version https://git-lfs.github.com/spec/v1\n",
		"scalar": "\x10\x01\x42\x01x\x4a\x04\x00\x00\x80\x3f", "tensor": "\x08\x02\x10\x01\x4a\x08", "packed": "\x0a\x02\x02\x03\x10\x01", "noise": "\xff\xfe\x00\x01\x02\x03\x04\x05\x06",
	} {
		got[name] = OfData([]byte(head))
	}
	require.Empty(t, cmp.Diff(map[string]Kind{
		"onnx": ONNX, "popef": PopEF, "package": Package, "contract": Contract, "goldens": Goldens, "folder": Folder, "text": Text,
		"nothing": Unknown, "empty": Empty, "npy": NPY, "zip": Zip, "gzip": Gzip, "tflite": Foreign, "lfs": LFS,
		"scalar": Tensor, "tensor": Tensor, "packed": Tensor, "noise": Unknown,
	}, got))
}

// FuzzKind gives the teller of files any beginning.
func FuzzKind(f *testing.F) {
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "generated_examples", "digits", "digits.onnx"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[:200])
	f.Add([]byte("\x08\x02\x10\x01\x4a\x08"))
	f.Fuzz(func(t *testing.T, head []byte) {
		if k := OfData(head); k < Unknown || k > Text {
			t.Errorf("kind %d", k)
		}
	})
}
