// Package random draws the numbers of [graph.Random]: words by Philox4x32-10, which depend on a key and a
// counter alone, and distributions by arithmetic that rounds alike on every machine.
package random
