// Package ops has the operators of PopXL as functions over typed tensors of
// package popxl. Shapes broadcast by numpy's rules where nothing else is said. Axes may
// be negative and count from the end then. A wrong shape or argument is kept in
// the Ir, see [popxl.Ir.Err].
package ops
