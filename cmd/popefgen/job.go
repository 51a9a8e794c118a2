package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/kind"
	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/internal/atomicfile"
	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// job is one package to be generated.
type job struct {
	ctx     context.Context // until when to do it; nil: without end
	dir     string
	models  []string // PopEF files that make one model, or an ONNX model
	options gen.Options
	embed   bool

	project bool          // it is of a popefgen.yaml
	propose bool          // names that say more
	compile *modelOptions // if the model is an ONNX model
	popef   string        // where it is compiled to; "" if it is in the package alone
}

// defaultPopEF puts the compiled model, which must be somewhere, beside the
// code that opens it.
func (j *job) defaultPopEF() {
	if base := filepath.Base(j.models[0]); j.popef == "" && !j.embed {
		j.popef = filepath.Join(j.dir, strings.TrimSuffix(base, filepath.Ext(base))+".popef")
	}
}

// rendered is what a job is to write.
type rendered struct {
	files     []gen.File
	published contract.Published
	warnings  []string
	proposals []gen.Rename // names that say more, if the job asks for them
	popef     []byte       // the compiled model, for job.popef
}

// render does a job up to what is to be written.
func (j *job) render() (r *rendered, err error) {
	r = &rendered{}
	ctx := j.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	room := budget.From(ctx).Part(0)
	defer room.Release()
	ctx = budget.Into(ctx, room)
	o := j.options
	o.Context = ctx
	models := j.models
	base := filepath.Base(models[0])
	if j.compile != nil {
		options := *j.compile
		options.ctx = ctx
		c, err := compileFile(models[0], options)
		if err != nil {
			return nil, err
		}
		r.warnings = c.Warnings
		if r.popef, err = c.Bytes(); err != nil {
			return nil, err
		}
		base = strings.TrimSuffix(base, filepath.Ext(base)) + ".popef"
		if j.popef != "" {
			base = filepath.Base(j.popef)
		}
	}
	o.ModelBase = base
	if o.Package == "" && j.dir != "." {
		if abs, err := filepath.Abs(j.dir); err == nil && hasLetter(filepath.Base(abs)) {
			o.Package = gen.PackageName(filepath.Base(abs))
		}
	}
	if j.embed {
		o.Embed = base
	}
	var m *popef.Model
	if j.compile != nil {
		m, err = popef.LoadBytes(base, r.popef)
	} else {
		m, err = popef.LoadContext(ctx, models...)
		err = kind.NotPopEF(err, models...)
	}
	if err != nil {
		return nil, err
	}
	defer m.Close()
	for _, w := range m.Warnings() {
		r.warnings = append(r.warnings, fmt.Sprint(w))
	}
	plan, err := gen.Build(m, o)
	if err != nil {
		return nil, err
	}
	r.published = plan.Published()
	if j.propose {
		if r.proposals, err = gen.Propose(m, o); err != nil {
			return nil, err
		}
	}
	if r.files, err = gen.Emit(plan); err != nil || o.Embed == "" {
		return r, err
	}
	model := gen.File{Name: base, Data: r.popef}
	if j.compile == nil {
		if model, err = gen.ModelCopy(plan, m); err != nil {
			return nil, err
		}
	}
	r.files = append(r.files, model)
	if n := len(model.Data); n > largeEmbedded {
		r.warnings = append(r.warnings, fmt.Sprintf("%s: embedding %s makes every build and every process hold it once more; without --embed, Open maps the file (docs/generated-code.md has figures)",
			filepath.Join(j.dir, base), humanize.IBytes(uint64(n))))
	}
	return r, nil
}

// largeEmbedded is the size in bytes from which on an embedded model is
// remarked on: builds notice it.
var largeEmbedded = 64 << 20

// write brings the package's folder to hold what was rendered, and returns
// what changed.
func (j *job) write(r *rendered) (changed []string, err error) {
	files, err := gen.Write(j.dir, r.files) // first, for it may refuse
	if err != nil {
		return files, err
	}
	if j.popef != "" {
		have, err := os.ReadFile(j.popef)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if !bytes.Equal(have, r.popef) {
			if err := errors.Join(os.MkdirAll(filepath.Dir(j.popef), 0o777), atomicfile.WriteBytes(j.popef, r.popef)); err != nil {
				return nil, fmt.Errorf("writing the compiled model: %w", err)
			}
			changed = append(changed, j.popef)
		}
	}
	return append(changed, files...), nil
}

// stale returns the files that write would change.
func (j *job) stale(r *rendered) (names []string, err error) {
	if names, err = gen.Stale(j.dir, r.files); err != nil || j.popef == "" {
		return names, err
	}
	have, err := os.ReadFile(j.popef)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if !bytes.Equal(have, r.popef) {
		names = append([]string{j.popef}, names...)
	}
	return names, nil
}
