//go:build poplar && poplarfake && linux && cgo

package poplar

// #include <poplar/fake.h>
import "C"

import "time"

// Blocks returns how many blocks of memory C and C++ have allocated and not freed in this process, and false where the C
// library is none whose calls can be counted.
func Blocks() (int64, bool) {
	n := int64(C.fake_blocks())
	return n, n >= 0
}

// Pause has the back end's thread wait for so long before it says that it parks, and before it does.
func Pause(d time.Duration) { C.fake_pauses(C.uint32_t(d.Microseconds())) }
