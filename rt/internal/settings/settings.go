// Package settings is what options of sessions and runners fill.
package settings

import "fmt"

// Of is what options have said, with a configuration of type C.
type Of[C any] struct {
	Config   C
	Narrowed string // the last option that says how to look for a device
	Err      error  // the first bad value
}

// Fail notes a bad value, unless there was one before.
func (s *Of[C]) Fail(format string, args ...any) {
	if s.Err == nil {
		s.Err = fmt.Errorf(format, args...)
	}
}
