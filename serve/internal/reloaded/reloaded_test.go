package reloaded

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// open returns a value of a file whose clock is the test's.
func open(t *testing.T, path string, failures *[]string) (*Value[string], *time.Time) {
	now := time.Now().Add(time.Hour)
	v, err := Open(func(contents [][]byte) (string, error) {
		if len(contents[0]) == 0 {
			return "", errors.New("empty")
		}
		return string(contents[0]), nil
	}, func(err error) { *failures = append(*failures, err.Error()) }, path)
	require.NoError(t, err)
	v.now = func() time.Time { return now }
	return v, &now
}

func write(t *testing.T, path, text string, at time.Time) {
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.NoError(t, os.Chtimes(path, at, at))
}

// TestReload: a change is seen once the interval is over, whether the file is written or another takes its place.
func TestReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	past := time.Now().Add(-time.Hour)
	write(t, path, "one", past)
	var failures []string
	v, now := open(t, path, &failures)
	require.Equal(t, "one", v.Get())
	write(t, path, "two", past.Add(time.Second))
	v.next.Store(now.Add(Interval).UnixNano())
	require.Equal(t, "one", v.Get(), "before the interval is over")
	*now = now.Add(Interval)
	require.Equal(t, "two", v.Get())

	other := path + ".new" // as secrets of Kubernetes are replaced: another file, with the same size and time
	write(t, other, "six", past.Add(time.Second))
	require.NoError(t, os.Rename(other, path))
	*now = now.Add(Interval)
	require.Equal(t, "six", v.Get())
	require.Empty(t, failures)
	require.Zero(t, testing.AllocsPerRun(100, func() { v.Get() }))
}

// TestReloadFails: what was read before stays, each failure is reported once, and the file is read as soon as it can be.
func TestReloadFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	past := time.Now().Add(-time.Hour)
	write(t, path, "one", past)
	var failures []string
	v, now := open(t, path, &failures)
	look := func() string { *now = now.Add(Interval); return v.Get() }
	write(t, path, "", past.Add(time.Second))
	require.Equal(t, "one", look())
	require.Equal(t, "one", look())
	require.Equal(t, []string{"empty"}, failures)
	require.NoError(t, os.Remove(path))
	require.Equal(t, "one", look())
	require.Len(t, failures, 2)
	write(t, path, "one", past) // as it was at first
	require.Equal(t, "one", look())
	write(t, path, "", past.Add(2*time.Second))
	look()
	require.Len(t, failures, 3, "the same failure after a success is news")
}

// TestReloadUnsettled: a file that was written as it was read is read again, although its time and size say nothing.
func TestReloadUnsettled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	var failures []string
	write(t, path, "one", time.Now().Add(-time.Hour))
	v, now := open(t, path, &failures)
	write(t, path, "two", *now)
	v.Look()
	require.Equal(t, "two", v.Get())
	write(t, path, "six", *now)
	*now = now.Add(Interval)
	require.Equal(t, "six", v.Get())
}

// TestOpenFails: the first time a failure is an error.
func TestOpenFails(t *testing.T) {
	parse := func(c [][]byte) (int, error) { return len(c), nil }
	_, err := Open(parse, nil, filepath.Join(t.TempDir(), "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Open(parse, nil, t.TempDir())
	require.ErrorContains(t, err, "expected a file of at most 1048576")
	big := filepath.Join(t.TempDir(), "big")
	require.NoError(t, os.WriteFile(big, make([]byte, maxBytes+1), 0o600))
	_, err = Open(parse, nil, big)
	require.ErrorContains(t, err, "found -rw------- of 1048577 bytes")
}
