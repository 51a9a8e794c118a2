//go:build !(linux && amd64) || race

package rt

import "sync/atomic"

// canFence reports whether fence works: it does not, and nobody calls it.
func canFence() bool { return false }

// fence does nothing.
func fence() {}

// storeQuietly stores v, with a fence after it.
func storeQuietly(p *atomic.Uint64, v uint64) { p.Store(v) }
