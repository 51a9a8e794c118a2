package mapfuture

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func double(in, out Tensors) {
	for i, v := range in["x"] {
		out["y"][i] = 2 * v
	}
}

func TestRunner(t *testing.T) {
	r := New(map[string]int{"x": 3}, map[string]int{"y": 3}, double)
	first := r.Execute(Tensors{"x": {1, 2, 3}})
	second := r.Execute(Tensors{"x": {4, 5, 6}})
	short := r.Execute(Tensors{"x": {1}})
	r.Close()
	got, err := first.Wait()
	require.NoError(t, err)
	require.Equal(t, Tensors{"y": {2, 4, 6}}, got)
	got, err = second.Wait()
	require.NoError(t, err)
	require.Equal(t, Tensors{"y": {8, 10, 12}}, got)
	_, err = short.Wait()
	require.EqualError(t, err, `input "x" has 1 bytes, want 3`)
	_, err = r.Execute(Tensors{"x": {1, 2, 3}}).Wait()
	require.ErrorIs(t, err, ErrClosed)
}

func TestConcurrentCallers(t *testing.T) {
	r := New(map[string]int{"x": 1}, map[string]int{"y": 1}, double)
	defer r.Close()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 100 {
				out, err := r.Execute(Tensors{"x": {byte(i)}}).Wait()
				if err != nil || out["y"][0] != byte(2*i) {
					t.Errorf("caller %d: got %v, %v", i, out, err)
				}
			}
		})
	}
	all.Wait()
}
