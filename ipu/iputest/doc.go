// Package iputest provides test devices, as net/http/httptest provides test
// servers: what drives IPUs can be tested with any number of devices, any
// timing and any failure, on any machine.
//
// A [System] is a back end with devices. It runs a [Script], an executable
// that says which streams each program reads and writes, and portable
// executables. It behaves as a device with a clock of its own does. It
// prefetches inputs as far as their depth and the engine's options allow,
// throws prefetched data away, hands out buffers that it overwrites after
// every call, loses what was loaded when another engine is loaded, and needs
// what an error asks for before it works again.
//
// A test controls it: [System.Occupy] makes devices busy, [System.Inject] lets
// anything fail or hang anywhere, a [Clock] passes when the test wants, and
// [System.Trace] and [System.Events] tell everything that happened.
//
// [RunEngineSuite] tests that an engine, of whatever back end, keeps the
// contract of package ipu.
package iputest
