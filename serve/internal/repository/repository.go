package repository

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/popefgen/popefgen/serve/oip"
)

// Server is what the models are handed to.
type Server interface {
	// Replace makes m the model of that name, in place of the one that there is. It refuses one whose contract is not
	// compatible, and leaves it to the caller then. What it replaces it drains and shuts down.
	Replace(ctx context.Context, name, version string, m oip.Model) error
	// Remove drains the model of that name and shuts it down.
	Remove(ctx context.Context, name string) error
	// Refused says why a version of a model does not serve; nil: there is no such reason any more.
	Refused(name, version string, reason error)
}

// Options are what a repository is made of.
type Options struct {
	Roots []string // files and folders
	Poll  time.Duration
	// Open opens a model and warms it up. It may take as long as it needs; ctx ends with the server.
	Open func(ctx context.Context, f Found) (oip.Model, error)
	Log  *slog.Logger
}

// Repository keeps a server's models as they are on disk. Its methods may be called from any goroutine.
type Repository struct {
	options Options
	server  Server

	mu     sync.Mutex // one change at a time
	models map[string]*state
}

// state is what became of a model.
type state struct {
	version string
	stamp   string // of the files that were tried last, whether or not they serve
	seen    string // of the files at the last look, which may still be written
	serving bool
	held    bool // taken out by Unload: it stays out until Load
}

// New returns a repository whose models are not loaded yet.
func New(server Server, o Options) *Repository {
	return &Repository{options: o, server: server, models: map[string]*state{}}
}

// Models lists what there is on disk, by name.
func (r *Repository) Models() ([]Found, error) {
	var all []Found
	from := map[string]string{}
	for _, root := range r.options.Roots {
		found, err := Scan(root)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			if before, ok := from[f.Name]; ok {
				return nil, fmt.Errorf("the model %q is there twice: %s and %s; rename one", f.Name, before, f.Paths[0])
			}
			from[f.Name] = f.Paths[0]
			all = append(all, f)
		}
	}
	return all, nil
}

// LoadAll loads every model, and returns the errors of all that can not be.
func (r *Repository) LoadAll(ctx context.Context) error {
	all, err := r.Models()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, f := range all {
		errs = append(errs, r.load(ctx, f))
	}
	return errors.Join(errs...)
}

// Load loads a model by its name, or again: whatever its files are now.
func (r *Repository) Load(ctx context.Context, name string) error {
	all, err := r.Models()
	if err != nil {
		return err
	}
	at := slices.IndexFunc(all, func(f Found) bool { return f.Name == name })
	if at < 0 {
		return oip.Errorf(oip.NotFound, "failed to load '%s': there is no such model in the repository", name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.load(ctx, all[at])
}

// Unload takes a model out of the server, until Load.
func (r *Repository) Unload(ctx context.Context, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.models[name]
	if s == nil || !s.serving {
		return oip.Errorf(oip.NotFound, "failed to unload '%s': it is not loaded", name)
	}
	s.serving, s.held = false, true
	return r.server.Remove(ctx, name)
}

// load opens a model and hands it to the server.
func (r *Repository) load(ctx context.Context, f Found) error {
	s := r.models[f.Name]
	if s == nil {
		s = &state{}
		r.models[f.Name] = s
	}
	s.stamp, s.seen, s.held = f.stamp, f.stamp, false
	begun := time.Now()
	err := f.Err
	if err == nil {
		err = r.open(ctx, f)
	}
	if err != nil {
		if ctx.Err() != nil {
			s.stamp = "" // it was not the model's fault
			return err
		}
		r.server.Refused(f.Name, f.Version, err)
		r.options.Log.Error("model refused", "model", f.Name, "version", f.Version, "serving", s.serving, "reason", err)
		return fmt.Errorf("model %q: %w", f.Name, err)
	}
	s.version, s.serving = f.Version, true
	r.server.Refused(f.Name, f.Version, nil)
	r.options.Log.Info("model ready", "model", f.Name, "version", f.Version, "files", f.Paths, "took", time.Since(begun).Round(time.Millisecond))
	return nil
}

// open opens a model beside the one that serves, and hands it over.
func (r *Repository) open(ctx context.Context, f Found) error {
	m, err := r.options.Open(ctx, f)
	if err != nil {
		return err
	}
	now := f
	if now.look(""); now.stamp != f.stamp { // what was read may be half of one file and half of another
		return errors.Join(errors.New("its files changed while they were read"), m.Shutdown(ctx))
	}
	if err := r.server.Replace(ctx, f.Name, f.Version, m); err != nil {
		return errors.Join(err, m.Shutdown(ctx))
	}
	return nil
}

// Watch loads what appears or changes, and unloads what disappears, until ctx ends. Files that were not the same at two
// looks are still being written, and are left alone.
func (r *Repository) Watch(ctx context.Context) {
	tick := time.NewTicker(r.options.Poll)
	defer tick.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := r.look(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != said {
			r.options.Log.Error("models can not be listed; those that serve do so", "reason", err)
		}
		if said = ""; err != nil {
			said = err.Error()
		}
	}
}

// look is one round of Watch.
func (r *Repository) look(ctx context.Context) error {
	all, err := r.Models()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	there := map[string]bool{}
	for _, f := range all {
		there[f.Name] = true
		s := r.models[f.Name]
		if s == nil {
			s = &state{}
			r.models[f.Name] = s
		}
		steady := s.seen == f.stamp
		s.seen = f.stamp
		if !steady || s.stamp == f.stamp || s.held || ctx.Err() != nil {
			continue
		}
		_ = r.load(ctx, f) // logged
	}
	for name, s := range r.models {
		switch {
		case there[name]:
		case s.seen != "": // it may be between two names
			s.seen = ""
		default:
			delete(r.models, name)
			r.server.Refused(name, s.version, nil)
			if s.serving {
				r.options.Log.Info("model unloaded: its files are gone", "model", name)
				if err := r.server.Remove(ctx, name); err != nil && ctx.Err() == nil {
					r.options.Log.Error("model unloaded", "model", name, "reason", err)
				}
			}
		}
	}
	return nil
}
