// Package pass optimises executables: [Passes] is the list, in order, and each
// has a file of its own that says what it looks for and what must hold before
// it rewrites. A pass leaves out whatever it can't prove.
package pass
