// Package poplar is a fake of the Poplar SDK, for the build tag poplarfake: headers that are called as Poplar's, with its
// ownership rules, and an implementation that runs small programs of its own and, through the cpu engine, portable
// executables. It is nastier than the real thing where that may find mistakes: it lends buffers for one call alone, looks
// ahead, refuses, throws away, and fails where a script says so.
//
// These environment variables control it:
//
//	FAKE_POPLAR_IPUS=4              single IPUs; groups of 2, 4, … follow
//	FAKE_POPLAR_ARCH=ipu2           or ipu21
//	FAKE_POPLAR_BUSY=1,3            IPUs that another process has
//	FAKE_POPLAR_LOCKS=DIR           attached IPUs are locked files there, so that processes see each other
//	FAKE_POPLAR_REMOTE_BUFFERS=true or false
//	FAKE_POPLAR_HASH=fa4e0000       the package hash
//	FAKE_POPLAR_NASTY=WORDS         poison, refuse, extra, delay, discard, silent, forget, latency=µs, seed=N; see fake.hpp
//	FAKE_POPLAR_FAULT=SCRIPT        errors at calls, as in run:1@5=recoverable:IPU_RESET;load@2=poplar_error; see fault.cpp
//	FAKE_POPLAR_TRACE=1             a line on stderr for every engine that is loaded
//
// It counts the blocks of memory that C and C++ allocate in the process, see Blocks.
package poplar
