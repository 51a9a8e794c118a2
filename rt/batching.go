package rt

import (
	"fmt"
	"time"
)

// Forever is a duration that never ends, where [BatchPolicy] asks for one.
const Forever time.Duration = -1

// BatchPolicy says how samples of one caller or of several become batches. A
// full batch always runs at once. One that is not full runs, padded with zeros
// that nobody sees, as soon as
//
//   - Linger has passed since its first sample came, or
//   - Quiet has passed since its last one came, if Quiet is not 0,
//
// and an engine is free; until then it takes more samples. With the zero policy
// batches therefore fill up while engines are busy, and nothing waits for
// samples that may not come. A batch is only ever run because somebody waits
// for its results.
type BatchPolicy struct {
	Linger time.Duration // [Forever]: until the batch is full, or Quiet has passed
	Quiet  time.Duration // 0: never
	Fixed  bool          // refuse a number of samples that does not fill whole batches
}

func (p BatchPolicy) check() error {
	if p.Linger < Forever || p.Quiet < 0 {
		return fmt.Errorf("%w: linger %v, quiet %v", ErrOption, p.Linger, p.Quiet)
	}
	return nil
}
