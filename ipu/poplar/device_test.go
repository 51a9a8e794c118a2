//go:build poplar && poplarfake && linux && cgo

package poplar_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/poplar"
	fake "github.com/popefgen/popefgen/ipu/poplar/internal/fakesdk/poplar"
)

func manager(t testing.TB) *ipu.Manager { return &ipu.Manager{Backends: []ipu.Backend{backend(t)}} }

// TestDevices lists single IPUs and groups of them, which are attached only together.
func TestDevices(t *testing.T) {
	ctx := context.Background()
	t.Setenv("FAKE_POPLAR_ARCH", "ipu21")
	m := manager(t)
	all, err := m.Devices(ctx)
	require.NoError(t, err)
	var sizes []int
	for i, d := range all {
		info := d.Info()
		require.Equal(t, []any{i, "ipu", 1472, 21, true}, []any{info.ID, info.Kind, info.TilesPerIPU, info.Version, info.RemoteBuffers})
		require.Contains(t, info.Description, "fake")
		sizes = append(sizes, info.NumIPUs)
	}
	require.Equal(t, []int{1, 1, 1, 1, 2, 2, 4}, sizes)

	pair, err := m.Get(ctx, ipu.Request{NumIPUs: 2})
	require.NoError(t, err)
	require.Equal(t, 4, pair.Info().ID)
	four, err := m.TryGet(ctx, ipu.Request{NumIPUs: 4})
	require.NoError(t, err)
	require.Nil(t, four, "two of its IPUs are taken")
	one, err := m.Get(ctx, ipu.Request{NumIPUs: 1})
	require.NoError(t, err)
	require.Equal(t, 2, one.Info().ID)
	require.NoError(t, pair.Detach())
	require.NoError(t, one.Detach())

	t.Setenv("FAKE_POPLAR_BUSY", "0,1,2")
	one, err = m.Get(ctx, ipu.Request{NumIPUs: 1})
	require.NoError(t, err)
	require.Equal(t, 3, one.Info().ID)
	_, err = m.Get(ctx, ipu.Request{NumIPUs: 1})
	require.ErrorIs(t, err, ipu.ErrNoDevice)
	waiting, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	_, err = m.Get(waiting, ipu.Request{NumIPUs: 1, Wait: ipu.Wait{Strategy: ipu.WaitForever, Sleep: 5 * time.Millisecond}})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, one.Detach())
	require.NoError(t, one.Detach())

	_, err = m.Get(ctx, ipu.Request{Options: []ipu.Option{{Name: "no.such", Value: "1"}}})
	require.ErrorIs(t, err, ipu.ErrInvalidOption)
	require.ErrorContains(t, err, "no.such")
	t.Setenv("FAKE_POPLAR_BUSY", "")
	d, err := m.Get(ctx, ipu.Request{Options: []ipu.Option{{Name: "target.syncMethod", Value: "polling"}}})
	require.NoError(t, err)
	require.NoError(t, d.Detach())
}

// TestSimulatedDevice runs on a simulated device.
func TestSimulatedDevice(t *testing.T) {
	d, err := manager(t).Simulate(t.Context(), ipu.Simulation{NumIPUs: 2, Version: 21}.Small())
	require.NoError(t, err)
	info := d.Info()
	require.Equal(t, []any{"ipu_model", 2, ipu.SmallTiles, 21}, []any{info.Kind, info.NumIPUs, info.TilesPerIPU, info.Version})
	e, err := backend(t).NewEngine(adder(64, 1, 2))
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	require.NoError(t, e.Load(t.Context(), d))
	rings(t, e, 64, 1)
	require.NoError(t, e.Run(t.Context(), 1))
	require.NoError(t, d.Detach())
	ok, err := d.Attach()
	require.True(t, ok)
	require.NoError(t, err)
	require.NoError(t, d.Detach())
}

// TestSimulatedLeftAlone makes devices that nobody attaches: nothing of them is left in C's memory.
func TestSimulatedLeftAlone(t *testing.T) {
	simulate := func() {
		_, err := backend(t).(ipu.Simulator).Simulate(t.Context(), ipu.Simulation{NumIPUs: 1, Version: 2})
		require.NoError(t, err)
	}
	simulate()
	before, counted := fake.Blocks()
	if !counted {
		t.Skip("blocks of C's memory can be counted with glibc alone, and without sanitizers")
	}
	for range 100 {
		simulate()
	}
	after, _ := fake.Blocks()
	require.Less(t, after, before+100)
}

// TestSimulatedMemory refuses simulated devices whose tiles have another memory than Poplar gives them.
func TestSimulatedMemory(t *testing.T) {
	_, err := manager(t).Simulate(t.Context(), ipu.Simulation{BytesPerTile: 40_000})
	require.ErrorIs(t, err, ipu.ErrNoDevice)
	require.ErrorContains(t, err, "a tile is to have 40000 bytes, and those of Poplar's simulated devices have 638976: leave BytesPerTile 0")
	d, err := manager(t).Simulate(t.Context(), ipu.Simulation{BytesPerTile: ipu.ArchBytesPerTile})
	require.NoError(t, err)
	require.NoError(t, d.Detach())
}

// TestPackageHash refuses executables of another Poplar, unless it is not to look.
func TestPackageHash(t *testing.T) {
	c := adder(64, 1, 2)
	c.Executable = []byte("GC_EXE_FAKE\nhash 0badcafe\n" + string(c.Executable[len("GC_EXE_FAKE\n"):]))
	_, err := backend(t).NewEngine(c)
	require.ErrorIs(t, err, ipu.ErrPackageHash)
	require.ErrorContains(t, err, "package hash (0badcafe) differs from poplar hash ("+poplar.PackageHash()+")")
	c.DisableHashCheck = true
	e, err := backend(t).NewEngine(c)
	require.NoError(t, err)
	require.NoError(t, e.Close())
}

// TestFormats refuses executables that no Poplar has made, and loading onto devices that they are not for.
func TestFormats(t *testing.T) {
	b := backend(t)
	require.ErrorIs(t, b.Accepts(ipu.FormatTest), ipu.ErrWrongBackend)
	for _, exe := range []string{"", "x", ipu.TestMagic + "{}"} {
		_, err := b.NewEngine(ipu.EngineConfig{Executable: []byte(exe)})
		require.ErrorIs(t, err, ipu.ErrWrongBackend, exe)
	}
	c := adder(64, 1, 2)
	c.Executable = []byte("GC_EXE_FAKE\ntarget ipu21 1\n" + string(c.Executable[len("GC_EXE_FAKE\n"):]))
	e, err := b.NewEngine(c)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	d := attached(t)
	require.ErrorContains(t, e.Load(t.Context(), d), "compiled for ipu21, the device is ipu2")
}

// TestKilled kills a process that runs a program on a device: the next process gets the device.
func TestKilled(t *testing.T) {
	dir := os.Getenv("POPLAR_TEST_HOLD")
	if dir != "" { // the process that is killed
		e, _ := engineOf(t, adder(64, 1, 2))
		go func() { _ = e.Run(context.Background(), 3) }()
		fmt.Println("holding")
		select {}
	}
	dir = t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestKilled$")
	cmd.Env = append(os.Environ(), "POPLAR_TEST_HOLD="+dir, "FAKE_POPLAR_LOCKS="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "holding\n", line)
	t.Setenv("FAKE_POPLAR_LOCKS", dir)
	all, err := backend(t).Devices(t.Context())
	require.NoError(t, err)
	ok, err := all[0].Attach()
	require.NoError(t, err)
	require.False(t, ok, "another process holds the device")
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	ok, err = all[0].Attach()
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, all[0].Detach())
}
