package core

// SetAvailable says which models could be loaded: the index has those of them, too, that nobody loaded. f may fail; it may be called
// from any goroutine.
func (c *Core) SetAvailable(f func() ([]string, error)) { c.available = f }

// loadable returns the names of models that could be loaded, as far as that can be known.
func (c *Core) loadable() []string {
	if c.available == nil {
		return nil
	}
	names, err := c.available()
	if err != nil {
		return nil // who loads a model learns of the error
	}
	return names
}
