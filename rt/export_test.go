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
