//go:build poplar && poplarfake && linux && cgo

package rt_test

// What keeps a test from running on the fake of Poplar.
const (
	bubble    = "its time is that of testing/synctest, which a thread outside of Go can't live by"
	goErrors  = "its device fails with an error, or a panic, of Go, of which the text alone comes through Poplar"
	stopped   = "it cancels a program that does not end by itself, after which Poplar has to load again"
	wordsOf   = "it compares the words of an error, which are Poplar's here"
	calls     = "it makes the calls of a device itself, without an engine"
	allocates = "it counts allocations, and the fake's device is in Go"
	shared    = "its device is shared by several engines, as no IPU is"
	fast      = "it counts on a device that computes as fast as requests come, in the time of a few system calls"
	output    = "it compares all that a program writes, and the fake tells of engines that are loaded"
	caller    = "its stream ends the goroutine that calls it, which is not the caller's here, as streams of Poplar are called in goroutines of their own"
	long      = "it opens some thousand sessions"
)

// notOnPoplar are the tests of this package that can't run on the fake of Poplar, each with its reason.
var notOnPoplar = map[string]string{
	"TestOverlap":                        bubble,
	"TestOverlapEnds":                    bubble,
	"TestFollow":                         bubble,
	"TestFollowAlone":                    bubble,
	"TestFollowPanics":                   bubble,
	"TestSamplesWait":                    bubble,
	"TestSamplesOfFailures":              bubble,
	"TestSamplesContext":                 bubble,
	"TestSamplesBound":                   bubble,
	"TestSamplesLeaders":                 bubble,
	"TestPanic":                          goErrors,
	"TestErrorsReachTheirRequest":        goErrors,
	"TestCallersCodeEndsGoroutine":       caller,
	"TestObserverOfPanic":                goErrors,
	"TestShutdownWhileComputing":         goErrors,
	"TestUpdateThatFails":                goErrors,
	"TestCancelDuringRun":                stopped,
	"TestCancelledRequests":              stopped,
	"TestSamplesErrors":                  stopped,
	"TestObserverOfRefusals":             stopped,
	"TestLogger":                         wordsOf,
	"TestFetchAndComplete":               calls,
	"TestPrefetchIsAsked":                calls,
	"TestInvalidatePrefetched":           calls,
	"TestNoAllocations":                  allocates,
	"TestLoggingIsFree":                  allocates,
	"TestApplicationErrorOnSharedDevice": shared,
	"TestQueueGroupTogether":             fast,
	"TestFlushVersusEnqueue":             fast,
	"TestLogVariables":                   output,
	"TestErrorsSayEachThingOnce":         long,
}
