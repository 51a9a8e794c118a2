// Package kerneltest runs kernels for the tests of their families: in one thread and
// in several, in place, with operands packed, over random operands of all types, and
// loops in assembly by themselves between pages that may not be touched.
package kerneltest
