package rt

import "fmt"

// NotFaked returns the error of a generated Fake's method that has no function;
// it wraps [ErrNotFaked].
func NotFaked(method string) error {
	return fmt.Errorf("%s: %w: set %sFunc", method, ErrNotFaked, method)
}
