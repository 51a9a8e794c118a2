package genrt

import (
	"fmt"

	"github.com/popefgen/popefgen/rt"
)

// NotFaked returns the error of a generated Fake's method that has no function;
// it wraps [rt.ErrNotFaked].
func NotFaked(method string) error {
	return fmt.Errorf("%s: %w: set %sFunc", method, rt.ErrNotFaked, method)
}
