package rt

// Waiting returns how many turns are in a session's queue.
func Waiting(s *Session) int {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	n := 0
	for t := s.gate.head; t != nil; t = t.next {
		n++
	}
	return n
}

// Prepare gives a generated stream its size, as Open does.
func Prepare(s bound, anchor string, size, transfers int) {
	w, _ := s.describe()
	w.anchor, w.size, w.count = anchor, size, transfers
}
