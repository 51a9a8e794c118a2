//go:build race

package rttest

// RaceEnabled says that the race detector is on, which allocates.
const RaceEnabled = true
