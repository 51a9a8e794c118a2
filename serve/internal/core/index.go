package core

import (
	"cmp"
	"maps"
	"slices"
)

// The states of a version, as Triton's repository index calls them.
const (
	Loading     = "LOADING"
	Serving     = "READY"
	Unloading   = "UNLOADING"
	Unavailable = "UNAVAILABLE"
)

// Entry is a version as the index of a repository shows it.
type Entry struct {
	Model, Version string
	State          string
	// Reason says why it does not serve or, of one that does, why what should have taken its place was refused. "" if
	// there is nothing to say.
	Reason string
	// Reloads and Refused count the models that took the version's place, and those that were refused.
	Reloads, Refused uint64
	// Rejected says that Reason is why what its files hold now was refused.
	Rejected bool
}

// state is what the index says of a version.
type state struct {
	state, reason    string
	reloads, refused uint64
	rejected         bool // reason is that of a refusal
}

func (c *Core) state(model, version string) *state {
	of := c.states[model]
	if of == nil {
		of = map[string]*state{}
		c.states[model] = of
	}
	s := of[version]
	if s == nil {
		s = &state{state: Unavailable}
		of[version] = s
	}
	return s
}

// Refuse notes in the index that what should have become a version of a model could not: because its file can not be
// opened, or its contract breaks. What serves goes on.
func (c *Core) Refuse(model, version string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state(model, version)
	s.refused++
	s.reason, s.rejected = err.Error(), true
	if m := (*c.models.Load())[model]; m == nil || m.find(version) == nil {
		s.state = Unavailable
	}
}

// Forget drops what the index says of a version that does not serve, such as why it was refused. What serves or ends stays.
func (c *Core) Forget(model, version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(model, version)
}

func (c *Core) forget(model, version string) {
	if s := c.states[model][version]; s == nil || s.state != Unavailable {
		return
	}
	delete(c.states[model], version)
	if len(c.states[model]) == 0 {
		delete(c.states, model)
	}
}

// Index returns every version that serves, served, or was refused, until it is forgotten or its files are gone, and every other model that could be loaded, by
// name and then the latest first.
func (c *Core) Index() []Entry {
	there, known := c.loadable()
	c.mu.Lock()
	defer c.mu.Unlock()
	if known {
		for model, of := range c.states {
			for version := range of {
				if !slices.Contains(there[model], version) {
					c.forget(model, version)
				}
			}
		}
	}
	var all []Entry
	for model, of := range c.states {
		for version, s := range of {
			all = append(all, Entry{model, version, s.state, s.reason, s.reloads, s.refused, s.rejected})
		}
	}
	for name := range there {
		if c.states[name] == nil {
			all = append(all, Entry{Model: name, State: Unavailable, Reason: "not loaded"})
		}
	}
	slices.SortFunc(all, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), later(b.Version, a.Version))
	})
	return all
}

// Names returns the names of the models that serve, sorted.
func (c *Core) Names() []string { return slices.Sorted(maps.Keys(*c.models.Load())) }

// Versions returns the names of a model's versions that serve, the latest first.
func (c *Core) Versions(model string) []string {
	var names []string
	if m := (*c.models.Load())[model]; m != nil {
		for _, v := range m.versions {
			names = append(names, v.Name)
		}
	}
	return names
}

// Statistics returns what was counted of each version that serves, of all models or of one.
func (c *Core) Statistics(model string) []Statistics {
	var all []Statistics
	for _, name := range c.Names() {
		if m := (*c.models.Load())[name]; m != nil && (model == "" || model == name) {
			for _, v := range m.versions {
				all = append(all, v.Statistics())
			}
		}
	}
	return all
}
