package core

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/serve/oip"
)

// Failure returns err as clients see it: an *oip.Error as it is, errors of package rt and of contexts by their kind. The
// texts of others may have paths and addresses of the server, so they are a cause for its log alone.
func Failure(model string, err error) *oip.Error {
	var known *oip.Error
	if errors.As(err, &known) {
		return known
	}
	e := &oip.Error{Cause: err}
	var size *rt.SizeError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		e.Code, e.Text = oip.Deadline, "the time of the request to model '"+model+"' was over before its answer"
	case errors.Is(err, context.Canceled):
		e.Code, e.Text = oip.Canceled, "the request to model '"+model+"' was cancelled"
	case errors.As(err, &size):
		e.Code, e.Text = oip.InvalidArgument, "model '"+model+"': "+size.Field+" "+size.Reason
	case errors.Is(err, rt.ErrSize), errors.Is(err, rt.ErrSamples), errors.Is(err, rt.ErrSequence):
		e.Code, e.Text = oip.InvalidArgument, "model '"+model+"' does not take the sizes of the request"
	case errors.Is(err, rt.ErrOverloaded), errors.Is(err, rt.ErrQueueFull):
		e.Code, e.Text = oip.Exhausted, "Exceeds maximum queue size: model '"+model+"' has no room; try again later"
	case errors.Is(err, rt.ErrClosed), errors.Is(err, rt.ErrStopped), errors.Is(err, rt.ErrUnbound):
		e.Code, e.Text = oip.Unavailable, "model '"+model+"' is closed; try again later"
	case errors.Is(err, rt.ErrDevice):
		e.Code, e.Text = oip.Internal, "the device of model '"+model+"' failed"
	default:
		e.Code, e.Text = oip.Internal, "model '"+model+"' failed"
	}
	return e
}

// panicked is the error of a request during which a model or one of its hooks panicked.
func panicked(model string, p any) error {
	return &oip.Error{Code: oip.Internal, Text: "model '" + model + "' failed", Cause: fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
}
