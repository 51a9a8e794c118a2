//go:build !linux

package workers

// semaphore is a counting semaphore on a channel: workers sleep on it, each until
// there is a token for it.
type semaphore struct{ tokens chan struct{} }

// init makes room for so many workers.
func (s *semaphore) init(workers int) { s.tokens = make(chan struct{}, workers) }

// wait sleeps until there is a token and takes it.
func (s *semaphore) wait() { <-s.tokens }

// post adds a token and wakes one worker for it.
func (s *semaphore) post() { s.tokens <- struct{}{} }

// giveWay lets other threads have the core, where the system has a way to ask
// for that.
func giveWay() {}
