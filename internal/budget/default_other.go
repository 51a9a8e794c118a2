//go:build !linux

package budget

// machine returns a figure that suits most: there is no portable way to ask for
// a machine's memory.
func machine() int64 { return unknownMachine }
