package core

// SetAvailable says which models could be loaded, by name with the versions of which there are files: the index has those of them, too, that
// nobody loaded, and none that does not serve and whose files are gone. f may fail; it may be called from any goroutine.
func (c *Core) SetAvailable(f func() (map[string][]string, error)) { c.available = f }

// loadable returns what could be loaded, and whether that is known.
func (c *Core) loadable() (map[string][]string, bool) {
	if c.available == nil {
		return nil, false
	}
	there, err := c.available()
	if err != nil {
		return nil, false // who loads a model learns of the error
	}
	return there, true
}

// Known reports whether the server has that version of a model, "" is any, whether or not it serves: it was unloaded or refused, or could be
// loaded.
func (c *Core) Known(model, version string) bool {
	c.mu.Lock()
	of := c.states[model]
	known := of[version] != nil || version == "" && of != nil
	c.mu.Unlock()
	if known || version != "" {
		return known
	}
	there, _ := c.loadable()
	_, known = there[model]
	return known
}
