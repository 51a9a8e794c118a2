package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/kind"
	"github.com/popefgen/popefgen/cmd/popefgen/internal/page"
	"github.com/popefgen/popefgen/internal/atomicfile"
	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/ipu/graph/pass"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// pictureFlags make inspect draw a model in place of printing what is in it.
var pictureFlags = append([]cli.Flag{
	&cli.StringFlag{Name: "html", Usage: "write a page to look at with a browser to `FILE`: graph, program flow, memory, weights"},
	&cli.StringFlag{Name: "profile", Usage: "with --html, show the times in `BENCH.json`, which bench --profile --json printed"},
	&cli.StringFlag{Name: "against", Usage: "with --html, show what is different in `MODEL`, the older one, side by side"},
	&cli.StringFlag{Name: "svg", Usage: "write the graph alone as a picture to `FILE`"},
	&cli.BoolFlag{Name: "dot", Usage: "print the graph for Graphviz"},
}, modelFlags...)

// wantsPicture reports whether a flag asks for a picture, and refuses flags
// that are for pictures only where there is none.
func wantsPicture(c *cli.Context) (bool, error) {
	html := c.IsSet("html")
	for _, f := range []string{"profile", "against"} {
		if c.IsSet(f) && !html {
			return false, fmt.Errorf("inspect: --%s is for --html", f)
		}
	}
	picture := html || c.IsSet("svg") || c.Bool("dot")
	if picture && (c.Bool("json") || c.Bool("plan")) {
		return false, errors.New("inspect: --json and --plan print; --html, --svg and --dot draw: want one or the other")
	}
	return picture, nil
}

// drawModel writes the pictures that inspect's flags ask for.
func drawModel(c *cli.Context) error {
	m, err := pictured(c, c.Args().Slice())
	if err != nil {
		return err
	}
	defer m.Model.Close()
	if c.Bool("dot") || c.IsSet("svg") {
		e, err := portable(m.Model)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		if c.Bool("dot") {
			if err := page.WriteDOT(c.App.Writer, e, page.Anchors(m.Model)); err != nil {
				return err
			}
		}
		if c.IsSet("svg") {
			if err := writePicture(c.String("svg"), func(w io.Writer) error { return page.WriteSVG(w, e, page.Anchors(m.Model)) }); err != nil {
				return err
			}
		}
	}
	if !c.IsSet("html") {
		return nil
	}
	o := page.Options{Model: m}
	if name := c.String("against"); name != "" {
		old, err := pictured(c, []string{name})
		if err != nil {
			return err
		}
		defer old.Model.Close()
		if o.Verdict, err = judged(c, name, c.Args().First(), old.Model, m.Model); err != nil {
			return err
		}
		o.Old = &old
	}
	if name := c.String("profile"); name != "" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		if o.Bench, err = page.ReadBench(f); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return writePicture(c.String("html"), func(w io.Writer) error { return page.Write(w, o) })
}

// pictured reads a model, of one .onnx file or of .popef files. Of an ONNX
// model, what it is before the graph passes is compiled as well.
func pictured(c *cli.Context, paths []string) (page.Model, error) {
	m := page.Model{Name: filepath.Base(paths[0])}
	if !kind.IsONNX(paths[0]) {
		for _, p := range paths {
			if kind.IsONNX(p) {
				return m, fmt.Errorf("%s: one model at a time: an .onnx model is one file", p)
			}
		}
		if !kind.IsONNX(c.String("against")) && !kind.IsONNX(c.Args().First()) {
			if err := noModelFlags(c, paths[0]); err != nil {
				return m, err
			}
		}
		var err error
		m.Model, err = popef.LoadContext(c.Context, paths...)
		return m, kind.NotPopEF(err, paths...)
	}
	if len(paths) > 1 {
		return m, fmt.Errorf("found %d arguments, want one .onnx model", len(paths))
	}
	r, err := compileONNX(c, paths[0])
	if err != nil {
		return m, err
	}
	if m.Model, err = r.ModelContext(c.Context, m.Name); err != nil {
		return m, err
	}
	o, err := optionsOf(c)
	if err != nil {
		return m, err
	}
	o.withoutPasses = nil
	for _, p := range pass.Passes {
		o.withoutPasses = append(o.withoutPasses, p.Name)
	}
	if r, err = compileFile(paths[0], o); err != nil {
		return m, err
	}
	m.Before = r.Executable
	if st, err := os.Stat(paths[0]); err == nil {
		m.Bytes = st.Size()
	}
	return m, nil
}

// portable decodes a model's executable.
func portable(m *popef.Model) (*graph.Executable, error) {
	blob, err := m.Executable()
	if err != nil {
		return nil, err
	}
	if f := ipu.Identify(blob); f != ipu.FormatPortable {
		return nil, fmt.Errorf("its executable is of format %v: only a portable one, as popefgen compile makes it, has a graph to draw", f)
	}
	return encoding.Decode(blob)
}

// judged says what diff would say of two models.
func judged(c *cli.Context, oldName, newName string, old, new *popef.Model) (*page.Verdict, error) {
	a, err := modelSide(old, nil)
	if err != nil {
		return nil, err
	}
	b, err := modelSide(new, nil)
	if err != nil {
		return nil, err
	}
	findings := contract.Judge(a.published, b.published)
	notes, err := contract.Notes(old, new)
	if err != nil {
		return nil, err
	}
	findings = append(findings, notes...)
	r := report(findings, diffSide{oldName, a.published.Hash()}, diffSide{newName, b.published.Hash()})
	return &page.Verdict{Verdict: r.Verdict, Count: r.count(), Advice: sentence(r.advice()), Findings: findings}, nil
}

// drawDiff writes diff's page of two models.
func drawDiff(c *cli.Context, r *diffReport, old, new *side) error {
	for i, s := range []*side{old, new} {
		if s.model == nil {
			return fmt.Errorf("--html: %s is a contract alone; want two models, .popef or .onnx", c.Args().Get(i))
		}
	}
	o := page.Options{
		Model:   page.Model{Name: filepath.Base(r.New.Name), Model: new.model},
		Old:     &page.Model{Name: filepath.Base(r.Old.Name), Model: old.model},
		Verdict: &page.Verdict{Verdict: r.Verdict, Count: r.count(), Advice: sentence(r.advice()), Findings: r.Findings},
	}
	return writePicture(c.String("html"), func(w io.Writer) error { return page.Write(w, o) })
}

// writePicture writes a file whole or not at all. Text in pictures is escaped
// for where it stands; here what would turn it around, or may not stand in XML.
func writePicture(path string, write func(io.Writer) error) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		safe := printable.NewWriter(w)
		return errors.Join(write(safe), safe.Flush())
	})
}
