//go:build race

package kerneltest

// raceEnabled says that the race detector is on, under which loops in Go take ten times as long.
const raceEnabled = true
