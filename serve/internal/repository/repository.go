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
	// Load makes m a version of the model of its name, in place of the one that there is, and shuts that one down once its
	// requests are answered. It refuses, notes so, and shuts down a model whose contract breaks the callers of what serves.
	Load(ctx context.Context, m oip.Model, version string) error
	// Unload takes a version of a model out of service, and shuts it down likewise.
	Unload(name, version string) error
	// Refuse notes why what should have become a version of a model could not.
	Refuse(name, version string, reason error)
	// Forget drops what was noted of a version that does not serve: its files are gone.
	Forget(name, version string)
}

// Root is a file or folder with models.
type Root struct {
	Path string
	Name string // of the model of a file; "": what the file is called
	All  bool   // all versions of a model serve; else the newest does
}

// Options are what a repository is made of.
type Options struct {
	Roots []Root
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
	models map[key]*state
}

// key is a version of a model.
type key struct{ name, version string }

// state is what became of a model.
type state struct {
	root    int
	stamp   string // of the files that were tried last, whether or not they serve
	seen    string // of the files at the last look, which may still be written
	serving bool
	held    bool // taken out by Unload: it stays out until Load
}

// New returns a repository whose models are not loaded yet.
func New(server Server, o Options) *Repository {
	return &Repository{options: o, server: server, models: map[key]*state{}}
}

// Models lists what there is on disk and is to serve.
func (r *Repository) Models() ([]Found, error) { return r.scan(false) }

// scan lists what there is on disk, in all versions or in those that are to serve.
func (r *Repository) scan(all bool) ([]Found, error) {
	var out []Found
	from := map[string]int{} // roots by name
	for i, root := range r.options.Roots {
		root.All = root.All || all
		found, err := Scan(root)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			if before, ok := from[f.Name]; ok && before != i {
				return nil, fmt.Errorf("the model %q is there twice: in %s and in %s; rename one", f.Name, r.options.Roots[before].Path, root.Path)
			}
			from[f.Name], f.Root = i, i
			out = append(out, f)
		}
	}
	return out, nil
}

// Versions lists the versions of which there are files, by model.
func (r *Repository) Versions() (map[string][]string, error) {
	all, err := r.scan(true)
	versions := map[string][]string{}
	for _, f := range all {
		versions[f.Name] = append(versions[f.Name], f.Version)
	}
	return versions, err
}

// LoadAll loads every model, and returns the errors of all that can not be. It is for servers that end with them: the log does not say them again.
func (r *Repository) LoadAll(ctx context.Context) error {
	all, err := r.Models()
	if err != nil {
		return err
	}
	return r.loadThese(ctx, all)
}

// LoadNamed is LoadAll of those models of these names that there are.
func (r *Repository) LoadNamed(ctx context.Context, names []string) error {
	all, err := r.Models()
	if err != nil {
		return err
	}
	return r.loadThese(ctx, slices.DeleteFunc(all, func(f Found) bool { return !slices.Contains(names, f.Name) }))
}

func (r *Repository) loadThese(ctx context.Context, all []Found) error {
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
	r.mu.Lock()
	defer r.mu.Unlock()
	there, found := map[key]bool{}, false
	var errs []error
	for _, f := range all {
		if f.Name == name {
			there[key{name, f.Version}], found = true, true
			errs = append(errs, r.loadAgain(ctx, f))
		}
	}
	for k, s := range r.models {
		switch {
		case k.name != name || there[k]:
		case !s.serving: // it was refused, and went
			delete(r.models, k)
			r.server.Forget(name, k.version)
		case found && errors.Join(errs...) == nil: // all versions serve, of those that there are
			delete(r.models, k)
			errs = append(errs, r.server.Unload(name, k.version))
		}
	}
	if !found {
		return oip.Errorf(oip.NotFound, "failed to load '%s': there is no such model in the repository", name)
	}
	return errors.Join(errs...)
}

// loadAgain is load of a server that goes on if that fails: the log says why.
func (r *Repository) loadAgain(ctx context.Context, f Found) error {
	err := r.load(ctx, f)
	if err != nil && ctx.Err() == nil {
		r.options.Log.Error("model refused", "model", f.Name, "version", f.Version, "serving", r.state(&f).serving, "reason", errors.Unwrap(err))
	}
	return err
}

// Unload takes a model out of the server, until Load.
func (r *Repository) Unload(_ context.Context, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	any := false
	for k, s := range r.models {
		if k.name == name && s.serving {
			any, s.serving = true, false
			errs = append(errs, r.server.Unload(k.name, k.version))
		}
		s.held = s.held || k.name == name
	}
	if !any {
		return oip.Errorf(oip.NotFound, "failed to unload '%s': it is not loaded", name)
	}
	return errors.Join(errs...)
}

// state returns what is known of a version.
func (r *Repository) state(f *Found) *state {
	k := key{f.Name, f.Version}
	if r.models[k] == nil {
		r.models[k] = &state{root: f.Root}
	}
	return r.models[k]
}

// load opens a model and hands it to the server.
func (r *Repository) load(ctx context.Context, f Found) error {
	s := r.state(&f)
	s.stamp, s.seen, s.held = f.stamp, f.stamp, false
	begun := time.Now()
	m, err := r.open(ctx, f)
	if err == nil {
		err = r.server.Load(ctx, m, f.Version)
	} else if ctx.Err() == nil {
		r.server.Refuse(f.Name, f.Version, err)
	}
	if err != nil {
		if ctx.Err() != nil {
			s.stamp = "" // it was not the model's fault
			return err
		}
		return fmt.Errorf("model %q: %w", f.Name, err)
	}
	s.serving = true
	r.options.Log.Info("model ready", "model", f.Name, "version", f.Version, "files", f.Paths, "took", time.Since(begun).Round(time.Millisecond))
	if r.options.Roots[f.Root].All {
		return nil
	}
	for k, other := range r.models { // the newest alone serves, of those that are there
		if k.name == f.Name && k.version != f.Version && other.serving {
			delete(r.models, k) // it serves again if the newer ones are taken away
			if err := r.server.Unload(k.name, k.version); err != nil {
				r.options.Log.Error("model unloaded", "model", k.name, "version", k.version, "reason", err)
			}
		}
	}
	return nil
}

// open opens a model beside the one that serves.
func (r *Repository) open(ctx context.Context, f Found) (oip.Model, error) {
	if f.Err != nil {
		return nil, f.Err
	}
	m, err := r.options.Open(ctx, f)
	if err != nil {
		return nil, err
	}
	now := f
	if now.look(""); now.stamp != f.stamp { // what was read may be half of one file and half of another
		return nil, errors.Join(errors.New("its files changed while they were read"), m.Shutdown(ctx))
	}
	return m, nil
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
	there, names := map[key]bool{}, map[string]bool{}
	for _, f := range all {
		there[key{f.Name, f.Version}], names[f.Name] = true, true
		s := r.state(&f)
		steady := s.seen == f.stamp
		s.seen = f.stamp
		if !steady || s.stamp == f.stamp || s.held || ctx.Err() != nil {
			continue
		}
		_ = r.loadAgain(ctx, f) // logged
	}
	for k, s := range r.models {
		switch {
		case there[k]:
		case names[k.name] && s.serving && !r.options.Roots[s.root].All: // another version takes its place, once it is ready
		case s.seen != "": // it may be between two names
			s.seen = ""
		default:
			delete(r.models, k)
			if !s.serving {
				r.server.Forget(k.name, k.version)
				continue
			}
			r.options.Log.Info("model unloaded: its files are gone", "model", k.name, "version", k.version)
			if err := r.server.Unload(k.name, k.version); err != nil {
				r.options.Log.Error("model unloaded", "model", k.name, "version", k.version, "reason", err)
			}
		}
	}
	return nil
}
