// Package spsc has round trips through queues of one producer and one consumer
// in C: the ones that rings of package rt are compared with. They are made as
// the best known of their kind is, SPSCQueue of Erik Rigtorp for C++: each
// side has its index on cache lines of its own and a copy of the other's.
package spsc

/*
#cgo CFLAGS: -std=c11 -O3
#cgo LDFLAGS: -lpthread
#include "spsc.h"
*/
import "C"

import (
	"fmt"
	"syscall"
)

// RoundTrips sends so many values of 8 bytes through one queue of that
// capacity to another thread, one by one, and waits for each to come back
// through another queue. Neither thread ever sleeps.
func RoundTrips(n, capacity int) error {
	if err := C.spsc_round_trips(C.int64_t(n), C.uint32_t(capacity)); err != 0 {
		return fmt.Errorf("%d round trips through queues of %d: %w", n, capacity, syscall.Errno(err))
	}
	return nil
}
