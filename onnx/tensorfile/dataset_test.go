package tensorfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
)

// scalar is a TensorProto: the float 1, with a name.
func scalar(name string) []byte {
	b := append([]byte{0x10, 1, 0x42, byte(len(name))}, name...)
	return append(b, 0x4a, 4, 0, 0, 0x80, 0x3f)
}

func TestDataSet(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, data, 0o666))
	}
	for _, set := range []string{"case/test_data_set_10", "case/test_data_set_9"} {
		write(set+"/input_10.pb", scalar("k"))
		write(set+"/input_9.pb", scalar("j"))
		write(set+"/output_0.pb", scalar(""))
		write(set+"/notes.txt", nil)
	}
	write("case/model.onnx", nil)
	write("case/x.npz", nil)
	write("none/readme", nil)
	write("bad/input_0.pb", []byte("hello"))
	at := func(p ...string) string { return filepath.Join(append([]string{dir}, p...)...) }

	found, err := FindDataSets(at("case"))
	require.NoError(t, err)
	require.Equal(t, []string{at("case", "test_data_set_9"), at("case", "test_data_set_10"), at("case", "x.npz")}, found)
	found, err = FindDataSets(found[0])
	require.NoError(t, err)
	require.Equal(t, []string{at("case", "test_data_set_9")}, found)
	_, err = FindDataSets(at("none"))
	require.ErrorContains(t, err, "there is nothing to import in it")
	_, err = FindDataSets(at("case", "model.onnx"))
	require.ErrorContains(t, err, "want a .npz file, or a folder")
	_, err = FindDataSets(at("nowhere"))
	require.ErrorIs(t, err, os.ErrNotExist)

	d, err := OpenDataSet(at("case", "test_data_set_9"))
	require.NoError(t, err)
	defer d.Close()
	require.Len(t, d.Stored, 3)
	for i, want := range []Stored{{Name: "", Role: OutputRole, Number: 0}, {Name: "j", Role: InputRole, Number: 9}, {Name: "k", Role: InputRole, Number: 10}} {
		got := d.Stored[i]
		require.Equal(t, want, Stored{Name: got.Name, Role: got.Role, Number: got.Number})
		data, err := d.Read(got, popef.TensorInfo{DataType: popef.F32})
		require.NoError(t, err)
		require.Equal(t, []byte{0, 0, 0x80, 0x3f}, data)
		_, err = d.Read(got, popef.TensorInfo{DataType: popef.F32, Shape: []int64{1}})
		require.ErrorContains(t, err, got.Where+": found shape [], want [1]")
	}
	_, err = OpenDataSet(at("bad"))
	require.ErrorContains(t, err, "input_0.pb")
}
