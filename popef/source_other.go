//go:build !unix

package popef

import (
	"errors"
	"os"
)

// mapFile fails: the file is read piece by piece instead.
func mapFile(*os.File, int64) ([]byte, func() error, error) {
	return nil, nil, errors.ErrUnsupported
}

// dropPages is never called: nothing is mapped.
func dropPages([]byte) {}
