package oneshot

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/bench/peer"
)

// TestMain makes the test binary a command of this package where it is started
// as one.
func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		Main(func(j *Job) (peer.Session, error) { return open(j) })
		return
	}
	os.Exit(m.Run())
}

const asCommand = "POPEFGEN_ONESHOT"

// hungry is a session that needs some memory for every run.
type hungry struct{ held [][]byte }

const bite = 8 << 20

func open(j *Job) (peer.Session, error) {
	if len(j.Case.Inputs) != 2 || string(j.Case.Inputs[1].Data) != "two" || j.Case.Inputs[0].Name != "x" || j.Threads != 3 {
		return nil, os.ErrInvalid
	}
	return &hungry{}, nil
}

func (h *hungry) Run() error {
	h.held = append(h.held, bytes.Repeat([]byte{1}, bite))
	return nil
}
func (h *hungry) Outputs() ([][]byte, error) { return h.held, nil }
func (h *hungry) Close() error               { return nil }

// TestProcess runs a job in a process of its own and checks what it reports.
func TestProcess(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("no /proc/self/status to learn from how much memory is in use")
	}
	t.Setenv(asCommand, "1")
	self, err := os.Executable()
	require.NoError(t, err)
	j := Job{Threads: 3, Runs: 4, Case: peer.Case{Inputs: []peer.Tensor{{Name: "x", Data: []byte("one")}, {Name: "y", Data: []byte("two")}}}}
	file, err := j.Write(t.TempDir())
	require.NoError(t, err)
	r, took, err := Start(self, file)
	require.NoError(t, err)
	require.Positive(t, took)
	require.Less(t, took, time.Minute)
	require.Greater(t, r.FirstPeak, int64(bite))
	require.Greater(t, r.Peak, r.FirstPeak+3*bite, "four more runs, give or take what was free")

	j.Threads = 1
	file, err = j.Write(t.TempDir())
	require.NoError(t, err)
	_, _, err = Start(self, file)
	require.Error(t, err, "the session was not opened")
	_, _, err = Start(self, filepath.Join(t.TempDir(), "none"))
	require.Error(t, err)
}
