package oip

import (
	"fmt"
	"time"
)

// Code says which kind of failure an [Error] is. Package serve maps it to a status of HTTP,
// serve/grpc to a code of gRPC.
type Code uint8

// The codes.
const (
	Internal           Code = iota // 500, INTERNAL: a defect of the server, a hook that panicked, a device that failed
	InvalidArgument                // 400, INVALID_ARGUMENT: the request can not be right for this model
	NotFound                       // 404, NOT_FOUND: there is no such model or version
	Unavailable                    // 503, UNAVAILABLE: not ready, draining, or closed
	Exhausted                      // 503 with Retry-After, RESOURCE_EXHAUSTED: the model's limit is reached
	TooLarge                       // 413, RESOURCE_EXHAUSTED: a body above the limit
	Deadline                       // 504, DEADLINE_EXCEEDED: the time of the request was over
	Canceled                       // 499, CANCELLED: the caller is gone
	FailedPrecondition             // 412, FAILED_PRECONDITION: the client was generated for another contract
	Unauthenticated                // 401, UNAUTHENTICATED: no valid credentials
	PermissionDenied               // 403, PERMISSION_DENIED: credentials that do not allow this
	Unimplemented                  // 501, UNIMPLEMENTED: an extension that this server does not have
	Unsupported                    // 415, INVALID_ARGUMENT: an encoding of the body that this server does not read
)

var codes = [...]struct {
	http int
	name string
}{
	Internal: {500, "INTERNAL"}, InvalidArgument: {400, "INVALID_ARGUMENT"}, NotFound: {404, "NOT_FOUND"},
	Unavailable: {503, "UNAVAILABLE"}, Exhausted: {503, "RESOURCE_EXHAUSTED"}, TooLarge: {413, "RESOURCE_EXHAUSTED"},
	Deadline: {504, "DEADLINE_EXCEEDED"}, Canceled: {499, "CANCELLED"}, FailedPrecondition: {412, "FAILED_PRECONDITION"},
	Unauthenticated: {401, "UNAUTHENTICATED"}, PermissionDenied: {403, "PERMISSION_DENIED"},
	Unimplemented: {501, "UNIMPLEMENTED"}, Unsupported: {415, "INVALID_ARGUMENT"},
}

// HTTP returns the status of HTTP that answers a failure of this kind.
func (c Code) HTTP() int { return codes[c].http }

// String returns the name that gRPC has for it, such as INVALID_ARGUMENT.
func (c Code) String() string {
	if int(c) >= len(codes) {
		return fmt.Sprintf("Code(%d)", uint8(c))
	}
	return codes[c].name
}

// Error is a failure as clients see it. Its text names what was found and what was expected, never the contents of
// a tensor.
type Error struct {
	Code Code
	Text string
	// RetryAfter, for Exhausted and Unavailable, says when to try again; 0 if the server can not tell.
	RetryAfter time.Duration
	// Contract, for FailedPrecondition, is the text of the contract of the server's model, which protocols carry
	// beside the text for the client to compare; "" if there is none, or it is too long.
	Contract string
	// Cause is what made it, for logs of the server and errors.Is; clients do not see it. It may be nil.
	Cause error
}

// Errorf returns an *Error of that code, with a text as fmt.Sprintf makes it.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }
