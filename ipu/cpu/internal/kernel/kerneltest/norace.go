//go:build !race

package kerneltest

// raceEnabled says that the race detector is off.
const raceEnabled = false
