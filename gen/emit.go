package gen

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/dave/jennifer/jen"
	"golang.org/x/sync/errgroup"

	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/templates"
)

// Import paths of what generated code uses.
const (
	rtPath  = "github.com/popefgen/popefgen/rt"
	cpuPath = "github.com/popefgen/popefgen/ipu/cpu"
)

// Emit renders a plan's Go files and its contract.txt, in the order of
// [Plan.Files]. It decides nothing: the same plan gives the same bytes
// everywhere. The embedded model copy, which a plan only names, is not among
// them; see [ModelCopy].
func Emit(p *Plan) ([]File, error) {
	renderers := []func(*Plan) ([]byte, error){mainFile, contractFile, nil, testFile}
	if !p.Tests {
		renderers = renderers[:3]
	}
	out := make([]File, len(renderers))
	var all errgroup.Group // with ten thousand anchors, files are worth a core each
	emit := func(i int, render func(*Plan) ([]byte, error)) (err error) {
		out[i], err = emitFile(p, p.Files[i], render)
		return err
	}
	for i, render := range renderers {
		if render != nil {
			all.Go(func() error { return emit(i, render) })
		}
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	data, err := visible(withContract(p, out[1].Data))
	if err != nil {
		return nil, fmt.Errorf("emitting %s: %w", p.Files[1], err)
	}
	out[1].Data = data
	if err := emit(2, func(p *Plan) ([]byte, error) { return modelFile(p, out[0].Data) }); err != nil {
		return nil, err
	}
	return append(out, File{Name: contract.FileName, Data: []byte(p.Published().FileText())}), nil
}

// emitFile renders, formats and checks one Go file.
func emitFile(p *Plan, name string, render func(*Plan) ([]byte, error)) (File, error) {
	data, err := render(p)
	if err != nil {
		return File{}, fmt.Errorf("emitting %s: %w", name, err)
	}
	if data, err = formatted(data); err != nil {
		return File{}, fmt.Errorf("formatting %s: %w", name, err)
	}
	if data, err = visible(data); err != nil {
		return File{}, fmt.Errorf("emitting %s: %w", name, err)
	}
	return File{Name: name, Data: data}, nil
}

// newFile begins a Go file with the header, the model and its contract.
// jennifer turns comments of several lines into block comments, which tools
// do not take for the mark of generated code, so each line is its own.
func newFile(p *Plan) *jen.File {
	f := jen.NewFile(p.Package)
	f.NoFormat = true // Emit does that
	f.HeaderComment(Header)
	f.HeaderComment(fmt.Sprintf("// Model %s, contract %s.", p.Model, p.ContractHash))
	f.ImportName(rtPath, "rt")
	return f
}

// render returns the file's text as jennifer wrote it.
func render(f *jen.File) ([]byte, error) {
	var b bytes.Buffer
	err := f.Render(&b)
	return b.Bytes(), err
}

// docText renders a documentation template as comment lines. Lines of
// running text are broken anew; indented lines and headings stay.
func docText(name string, p *Plan) ([]string, error) {
	text, err := templates.Render(name, p)
	if err != nil {
		return nil, err
	}
	var out, paragraph []string
	flush := func() {
		if len(paragraph) > 0 {
			for _, line := range wrap(strings.Join(paragraph, " ")) {
				out = append(out, comment(line))
			}
			paragraph = nil
		}
	}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if line == "" || line[0] == '\t' || line[0] == '#' {
			flush()
			out = append(out, comment(line))
			continue
		}
		paragraph = append(paragraph, line)
	}
	flush()
	return out, nil
}

// comment makes a line comment that jennifer leaves alone.
func comment(line string) string {
	return strings.TrimRight("// "+line, " ")
}

// comments adds a line comment per line.
func comments(g *jen.Group, lines ...string) {
	for _, line := range lines {
		g.Comment(comment(line))
	}
}
