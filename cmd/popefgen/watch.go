package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/table"
	"github.com/popefgen/popefgen/onnx/tensorfile"
	"github.com/popefgen/popefgen/popef/contract"
)

var watchCommand = &cli.Command{
	Name:  "watch",
	Usage: "generate packages again whenever their models change, and say what that means for callers",
	UsageText: "popefgen watch -m MODEL.popef|MODEL.onnx [-o DIR] [flags]\npopefgen watch [--config popefgen.yaml]\n\n" +
		"example: popefgen watch -m digits.popef -o digits",
	Flags: append([]cli.Flag{
		&cli.DurationFlag{Name: "interval", Usage: "`TIME` between two looks at the files", Value: 300 * time.Millisecond},
	}, packageFlags...),
	Action: func(c *cli.Context) error {
		if err := noArgs(c); err != nil {
			return err
		}
		interval := c.Duration("interval")
		if interval <= 0 {
			return fmt.Errorf("watch: --interval %v: want more than 0", interval)
		}
		jobs, project, err := jobsOf(c)
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		w := newWatcher(c, jobs, project)
		fmt.Fprintf(c.App.ErrWriter, "watching %s; interrupt ends it\n", table.Counted(len(w.files), "file"))
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			w.look()
			select {
			case <-ticker.C:
			case <-c.Context.Done():
				return nil
			}
		}
	},
}

// watcher looks at the files of jobs by name again and again: a file that is
// replaced by a rename, or that a mounted file system changes without telling,
// is seen like any other.
type watcher struct {
	c       *cli.Context
	jobs    []job
	project string // the file that has the jobs; "" if the flags have
	files   map[string]*watchedFile
	done    []bool // jobs that were rendered from the files as they are
	read    bool   // the project, as it is
}

// watchedFile is what was seen of a file. It counts as changed once two looks
// in a row see the same: who writes it may not be through before.
type watchedFile struct {
	seen    os.FileInfo // nil if it was not there
	settled bool
	jobs    []int
}

func newWatcher(c *cli.Context, jobs []job, project string) *watcher {
	w := &watcher{c: c, project: project, read: true}
	w.watch(jobs)
	return w
}

// watch takes jobs on, in place of those there were; what was seen of files and
// done of jobs stays.
func (w *watcher) watch(jobs []job) {
	done := make([]bool, len(jobs))
	for i := range jobs {
		k := slices.IndexFunc(w.jobs, func(j job) bool { return reflect.DeepEqual(j, jobs[i]) })
		done[i] = k >= 0 && w.done[k]
	}
	before := w.files
	w.jobs, w.done, w.files = jobs, done, map[string]*watchedFile{}
	add := func(name string) *watchedFile {
		name = filepath.Clean(name)
		f := w.files[name]
		if f == nil {
			f = &watchedFile{}
			if b := before[name]; b != nil {
				f.seen, f.settled = b.seen, b.settled
			}
			w.files[name] = f
		}
		return f
	}
	if w.project != "" {
		if f := add(w.project); before == nil { // it was read a moment ago
			f.seen, _ = os.Stat(w.project)
		}
	}
	for i, j := range jobs {
		names := slices.Clone(j.models)
		if j.compile != nil {
			for _, b := range j.compile.binds {
				if path, ok := tensorfile.Path(b[1]); ok {
					names = append(names, path)
				}
			}
		}
		for _, name := range names {
			f := add(name)
			f.jobs = append(f.jobs, i)
		}
	}
}

// look looks at all files once and generates what has to be.
func (w *watcher) look() {
	for name, f := range w.files {
		now, err := os.Stat(name)
		if err != nil {
			now = nil
		}
		f.settled = sameFile(now, f.seen)
		if !f.settled {
			f.seen = now
			for _, i := range f.jobs {
				w.done[i] = false
			}
			if name == filepath.Clean(w.project) {
				w.read = false
			}
		}
	}
	w.readProject()
	for i := range w.jobs {
		if !w.done[i] && w.settled(i) {
			w.done[i] = true
			if err := w.generate(&w.jobs[i]); err != nil {
				fmt.Fprintf(w.c.App.ErrWriter, "%s: %v\n", w.jobs[i].dir, err)
			}
		}
	}
}

// readProject takes the jobs from the project's file once that has changed and
// is whole. If it is wrong, the jobs there were are watched until it is right.
func (w *watcher) readProject() {
	f := w.files[filepath.Clean(w.project)]
	if w.read || f == nil || !f.settled || f.seen == nil {
		return
	}
	w.read = true
	jobs, err := readProject(w.project)
	if err != nil {
		fmt.Fprintf(w.c.App.ErrWriter, "%v\n", err)
		return
	}
	w.watch(jobs)
	fmt.Fprintf(w.c.App.ErrWriter, "%s has changed: watching %s\n", w.project, table.Counted(len(w.files), "file"))
}

// settled reports whether a job's files are all there and at rest.
func (w *watcher) settled(job int) bool {
	for _, f := range w.files {
		for _, i := range f.jobs {
			if i == job && (!f.settled || f.seen == nil) {
				return false
			}
		}
	}
	return true
}

// generate brings a package up to date and prints the verdict on its contract.
func (w *watcher) generate(j *job) error {
	file := filepath.Join(j.dir, contract.FileName)
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	now := *j
	now.ctx = w.c.Context
	r, err := now.render()
	if err != nil {
		return err
	}
	before, badContract := contract.ParseFile(string(text))
	if _, err := j.finish(w.c, r, false, ""); err != nil {
		return err
	}
	if text == nil || badContract != nil {
		return nil // there is nothing to compare with
	}
	return verdict(file, before, j.dir, r.published).text(w.c.App.Writer)
}

// verdict judges the contract of a package that changes.
func verdict(oldName string, old contract.Published, newName string, new contract.Published) *diffReport {
	return report(contract.Judge(old, new), diffSide{oldName, old.Hash()}, diffSide{newName, new.Hash()})
}

// sameFile reports whether a file is what it was, as far as the system says
// without reading it; nil is a file that is not there.
func sameFile(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
