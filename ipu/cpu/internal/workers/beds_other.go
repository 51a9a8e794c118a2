//go:build !linux

package workers

// beds is where workers sleep, each until there is a token for it.
type beds struct{ tokens chan struct{} }

// init makes room for so many workers.
func (b *beds) init(workers int) { b.tokens = make(chan struct{}, workers) }

// sleep waits for a token and takes it.
func (b *beds) sleep() { <-b.tokens }

// wake adds a token, for one worker.
func (b *beds) wake() { b.tokens <- struct{}{} }

// giveWay lets other threads have the core, where the system has a way to ask
// for that.
func giveWay() {}
