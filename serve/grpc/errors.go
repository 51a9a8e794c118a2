package grpcserve

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/popefgen/popefgen/serve/oip"
)

// The detail of a FAILED_PRECONDITION that has the text of the server's contract.
const (
	domain   = "popefgen"
	contract = "CONTRACT"
	text     = "contract"
)

// The codes of gRPC, and the one of oip that a client makes of each.
var fromOIP = [...]codes.Code{
	oip.Internal: codes.Internal, oip.InvalidArgument: codes.InvalidArgument, oip.NotFound: codes.NotFound,
	oip.Unavailable: codes.Unavailable, oip.Exhausted: codes.ResourceExhausted, oip.TooLarge: codes.ResourceExhausted,
	oip.Deadline: codes.DeadlineExceeded, oip.Canceled: codes.Canceled, oip.FailedPrecondition: codes.FailedPrecondition,
	oip.Unauthenticated: codes.Unauthenticated, oip.PermissionDenied: codes.PermissionDenied,
	oip.Unimplemented: codes.Unimplemented, oip.Unsupported: codes.InvalidArgument,
}

// failure returns err as an *oip.Error. What is none, and not the end of a context, is a defect that clients do
// not see the inside of.
func failure(err error) *oip.Error {
	var e *oip.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.DeadlineExceeded):
		return &oip.Error{Code: oip.Deadline, Text: "the time of the request is over", Cause: err}
	case errors.Is(err, context.Canceled):
		return &oip.Error{Code: oip.Canceled, Text: "the caller has gone", Cause: err}
	}
	return &oip.Error{Code: oip.Internal, Text: "the request failed in the server", Cause: err}
}

// toStatus returns the error that grpc-go sends for err.
func toStatus(err error) error {
	e := failure(err)
	code := codes.Internal
	if int(e.Code) < len(fromOIP) {
		code = fromOIP[e.Code]
	}
	s := status.New(code, e.Text)
	var details []protoadapt.MessageV1
	if e.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)})
	}
	if e.Contract != "" {
		details = append(details, &errdetails.ErrorInfo{Reason: contract, Domain: domain, Metadata: map[string]string{text: strings.ToValidUTF8(e.Contract, "�")}})
	}
	if len(details) > 0 {
		if with, err := s.WithDetails(details...); err == nil {
			s = with
		}
	}
	return s.Err()
}

// fromStatus returns a server's error as an *oip.Error.
func fromStatus(err error) error {
	if err == nil {
		return nil
	}
	var known *oip.Error
	if errors.As(err, &known) {
		return known
	}
	s, ok := status.FromError(err)
	if !ok {
		return failure(err)
	}
	e := &oip.Error{Code: oip.Internal, Text: s.Message(), Cause: err}
	for c := range fromOIP {
		if fromOIP[c] == s.Code() {
			e.Code = oip.Code(c)
			break // RESOURCE_EXHAUSTED: Exhausted is before TooLarge
		}
	}
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			e.RetryAfter = d.GetRetryDelay().AsDuration()
		case *errdetails.ErrorInfo:
			if d.GetDomain() == domain && d.GetReason() == contract {
				e.Contract = d.GetMetadata()[text]
			}
		}
	}
	return e
}
