package iputest

import (
	"testing"

	"github.com/popefgen/popefgen/ipu"
)

// Suite says what [RunEngineSuite] is to test.
type Suite struct {
	// Backend makes the engines.
	Backend ipu.Backend
	// Executable is the suite's model in a format of the back end:
	// [SuitePortable], the bytes of [SuiteScript], or made to be the same. It
	// has the streams "w", "a" and "b" from host to device and "sum" and
	// "state" from device to host, each f32[4], and the programs
	//
	//	0  reads w
	//	1  reads a, reads b, writes sum = (a+b)·w
	//	2  writes state = w
	//	3  does three times what program 1 does
	//
	// where w keeps its value between programs.
	Executable []byte
	// Options are given to every engine.
	Options []ipu.Option
	// Device returns a device that is not attached. Without it the suite takes
	// the first of the back end's.
	Device func(t testing.TB) ipu.Device
}

// RunEngineSuite tests that the engines of a back end keep the contract of
// package ipu, as its tests' names say. It takes well under a second of an
// engine that computes at once.
func RunEngineSuite(t *testing.T, s Suite) {
	for _, test := range []struct {
		name string
		run  func(*suiteRun)
	}{
		{"Description", testDescription},
		{"UnknownStream", testUnknownStream},
		{"NotLoaded", testNotLoaded},
		{"LoadRefused", testLoadRefused},
		{"UnknownProgram", testUnknownProgram},
		{"Unconnected", testUnconnected},
		{"Transfers", testTransfers},
		{"OrderOfStreams", testOrder},
		{"Repeats", testRepeats},
		{"Prefetch", testPrefetch},
		{"Reconnect", testReconnect},
		{"StateBetweenPrograms", testState},
		{"CallbackErrors", testCallbackErrors},
		{"CallbackPanics", testCallbackPanics},
		{"StopBlockedRun", testStopBlocked},
		{"StopIdle", testStopIdle},
		{"Cancel", testCancel},
		{"ConcurrentRunRefused", testConcurrent},
		{"AnyGoroutine", testGoroutines},
		{"EnginesTakeTurns", testTurns},
		{"Close", testClose},
		{"NoAllocations", testAllocations},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(&suiteRun{T: t, suite: s, journal: &journal{t: t}}) })
	}
}
