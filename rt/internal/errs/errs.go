// Package errs has the error kinds that several rooms of rt return. Users know
// them by their names in package rt.
package errs

import "errors"

// ErrOption is rt.ErrOption: an option has a value that is out of range, or no
// meaning where it was given.
var ErrOption = errors.New("bad option")

// ErrConcurrent, ErrQueueFull, ErrOverloaded and ErrTicketUsed are those of rt.
var (
	ErrConcurrent = errors.New("called concurrently")
	ErrQueueFull  = errors.New("queue is full")
	ErrOverloaded = errors.New("too many calls wait")
	ErrTicketUsed = errors.New("ticket was used already")
)
