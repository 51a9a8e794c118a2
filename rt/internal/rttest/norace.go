//go:build !race

package rttest

// RaceEnabled says that the race detector is off.
const RaceEnabled = false
