package main

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/dynamic"
	"github.com/popefgen/popefgen/cmd/popefgen/internal/kind"
	"github.com/popefgen/popefgen/cmd/popefgen/internal/table"
	"github.com/popefgen/popefgen/golden/outputs"
	"github.com/popefgen/popefgen/internal/npy"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/tensorfile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

var goldenImportCommand = &cli.Command{
	Name:  "import",
	Usage: "store somebody else's inputs and outputs, and say how far the model is off",
	UsageText: "popefgen golden import MODEL.popef|MODEL.onnx DATA… -o DIR [flags]\n\n" +
		"DATA is a data set in the layout of ONNX's tests (a folder with input_N.pb and output_N.pb), a .npz file with an array\n" +
		"for each input and output, or a folder with test_data_set_N folders or .npz files. What an ONNX model leaves open is as\n" +
		"in the first data set.\n\n" +
		"example: popefgen golden import digits.popef test_data_set_0 -o digits/testdata/golden\n" +
		"         popefgen golden import model.onnx . -o testdata/golden --tolerance rel:1e-3,abs:1e-4",
	ArgsUsage: "MODEL DATA… -o DIR",
	Flags: append(append([]cli.Flag{
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`DIR` of the goldens; cases are added to those there"},
		&cli.StringFlag{Name: "name", Usage: "`NAME` of the case, or what the names of several begin with", DefaultText: "that of the data set"},
		toleranceFlag,
		&cli.StringSliceFlag{Name: "input", Aliases: []string{"i"}, Usage: "value of an input that is not given with every run, `NAME=VALUE`: a file, a number or a list"},
		&cli.Uint64Flag{Name: "random", Usage: "fill such inputs with random values from `SEED`"},
		branchFlag,
	}, engineFlags...), modelFlags...),
	Action: func(c *cli.Context) error { return named("golden import", goldenImport(c)) },
}

func goldenImport(c *cli.Context) (err error) {
	dir := c.String("output")
	switch {
	case c.NArg() < 2:
		return fmt.Errorf("found %d arguments, want the model and its data (usage: popefgen golden import MODEL DATA… -o DIR)", c.NArg())
	case dir == "":
		return errors.New("which folder? (usage: popefgen golden import MODEL DATA… -o DIR)")
	}
	files, err := assignments("input", c.StringSlice("input"))
	if err != nil {
		return err
	}
	var sets []*tensorfile.DataSet
	defer func() {
		for _, s := range sets {
			err = errors.Join(err, s.Close())
		}
	}()
	for _, path := range c.Args().Tail() {
		found, err := tensorfile.FindDataSets(path)
		if err != nil {
			return err
		}
		for _, f := range found {
			s, err := tensorfile.OpenDataSet(f)
			if err != nil {
				return err
			}
			sets = append(sets, s)
		}
	}
	names, err := caseNames(c, sets)
	if err != nil {
		return err
	}
	model, given, err := importModel(c, sets[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	if err := oneSize(model); err != nil {
		return err
	}
	d, err := openDynamic(c, model, given.size, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	m, err := d.Golden()
	if err != nil {
		return err
	}
	tolerances, err := tolerancesOf(c, m)
	if err != nil {
		return err
	}
	// All data sets are read before anything is written.
	in, out := make([][][]byte, len(sets)), make([][][]byte, len(sets))
	var bad []error
	for i, s := range sets {
		if in[i], out[i], err = given.match(m, s); err != nil {
			bad = append(bad, fmt.Errorf("%s: %w", s.Path, err))
		}
	}
	if bad != nil {
		return errors.Join(bad...)
	}
	d.GivenByCases()
	if err := d.Fill(files, randomSeed(c, 0)); err != nil {
		return err
	}
	for i := range sets {
		if err := outputs.Import(dir, names[i], m, in[i], out[i], tolerances); err != nil {
			return err
		}
	}
	fmt.Fprintf(c.App.ErrWriter, "%s: imported %s of %s and %s; the model beside them:\n", dir, table.Counted(len(sets), "case"), table.Counted(len(m.Inputs), "input"), table.Counted(len(m.Outputs), "output"))
	set, err := outputs.Open(dir)
	if err != nil {
		return err
	}
	r, err := set.Verify(c.Context, m)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(c.App.Writer, r); err != nil {
		return err
	}
	if !r.OK() {
		fmt.Fprintln(c.App.ErrWriter, "the cases are stored; if the model can't be more exact, import them again with --tolerance")
		return errNo
	}
	return nil
}

// oneSize returns an error if data sets can't be imported for a model, which has several sizes or
// outputs whose sizes data decides.
func oneSize(m *popef.Model) error {
	f, err := dynamic.FamilyOf(m)
	switch {
	case err != nil || f == nil:
		return err
	case len(f.Members) > 1:
		return errors.New("the model has several sizes, and data sets are imported for one: compile it for the size of the data (compile --dim with one number for each dimension); " +
			"popefgen verify with the same --batch and --dim compares ONNX's data sets by all sizes, and golden record stores what the model itself answers")
	}
	for i := range f.Tensors {
		if t := &f.Tensors[i]; t.Counted() {
			return fmt.Errorf("data decides how much there is of output %q, and stored outputs are of one size: popefgen verify --open compares ONNX's data sets as they are, and golden record stores what the model itself answers", t.Name)
		}
	}
	return nil
}

// caseNames returns what the data sets are called as goldens.
func caseNames(c *cli.Context, sets []*tensorfile.DataSet) ([]string, error) {
	names := make([]string, len(sets))
	for i, s := range sets {
		abs, err := filepath.Abs(s.Path)
		if err != nil {
			return nil, err
		}
		names[i] = strings.TrimSuffix(filepath.Base(abs), filepath.Ext(abs))
		switch {
		case c.IsSet("name") && len(sets) > 1:
			names[i] = fmt.Sprintf("%s-%03d", c.String("name"), i)
		case c.IsSet("name"):
			names[i] = c.String("name")
		}
		if k := slices.Index(names[:i], names[i]); k >= 0 {
			return nil, fmt.Errorf("%s and %s would both be the case %s; --name NAME numbers them", sets[k].Path, s.Path, names[i])
		}
	}
	return names, nil
}

// importNames is what tells which stored tensor is which of a model's.
type importNames struct {
	inputs, outputs []string                // in the model's own order
	size            int64                   // bytes of its files
	bound           map[string]*onnx.Tensor // inputs with a value, which are inputs no longer
}

// importModel opens the model; what an ONNX model leaves open is as in a data
// set.
func importModel(c *cli.Context, first *tensorfile.DataSet) (*popef.Model, *importNames, error) {
	path := c.Args().First()
	if kind.IsONNX(path) {
		return importONNX(c, path, first)
	}
	m, size, err := openModel(c, path)
	if err != nil {
		return nil, nil, err
	}
	names := &importNames{size: size}
	roles := contract.Roles(m)
	for i, a := range m.Metadata.Anchors {
		switch roles[i] {
		case contract.RunInput:
			names.inputs = append(names.inputs, a.Name)
		case contract.RunOutput:
			names.outputs = append(names.outputs, a.Name)
		}
	}
	return m, names, nil
}

func importONNX(c *cli.Context, path string, first *tensorfile.DataSet) (*popef.Model, *importNames, error) {
	m, err := onnx.ReadFileContext(c.Context, path)
	if err != nil {
		return nil, nil, kind.NotONNX(path, err)
	}
	o, err := optionsOf(c)
	if err != nil {
		return nil, nil, err
	}
	if err := o.One("golden import"); err != nil {
		return nil, nil, err
	}
	to, err := o.compileOptions(m)
	if err != nil {
		return nil, nil, err
	}
	names := namesOf(m.Graph)
	names.bound, names.size = to.Values, m.Size
	ins, _ := names.split(first)
	values := map[string]*onnx.Tensor{}
	to.Shapes = map[string][]int64{}
	for _, s := range ins {
		if !slices.Contains(names.inputs, s.Name) || to.Values[s.Name] != nil {
			continue
		}
		if values[s.Name], err = first.Tensor(s); err != nil {
			return nil, nil, err
		}
		to.Shapes[s.Name] = values[s.Name].Dims
	}
	for {
		r, err := compile.CompileContext(c.Context, m, to)
		if need := (*onnx.NeedValueError)(nil); errors.As(err, &need) {
			bound := false
			for _, name := range need.Inputs() {
				if t := values[name]; t != nil && to.Values[name] == nil {
					to.Values[name], bound = t, true
					delete(to.Shapes, name)
					fmt.Fprintf(c.App.ErrWriter, "input %q decides a shape: it is bound to its value in %s\n", name, first.Path)
				}
			}
			if bound {
				continue
			}
		}
		if err != nil {
			return nil, nil, fmt.Errorf("for the sizes in %s: %w", first.Path, err)
		}
		for _, w := range r.Warnings {
			fmt.Fprintf(c.App.ErrWriter, "warning: %s\n", w)
		}
		model, err := r.ModelContext(c.Context, filepath.Base(path))
		return model, names, err
	}
}

// namesOf returns a graph's names in the order in which data sets number them.
func namesOf(g *onnx.Graph) *importNames {
	n := &importNames{}
	for _, v := range g.Inputs {
		if !slices.ContainsFunc(g.Initializers, func(t *onnx.Tensor) bool { return t.Name == v.Name }) {
			n.inputs = append(n.inputs, v.Name)
		}
	}
	for _, v := range g.Outputs {
		n.outputs = append(n.outputs, v.Name)
	}
	return n
}

// split returns a data set's inputs and outputs, with the model's names as far
// as they can be recognised: of tensors none of which has a name of the model's, the
// numbers tell.
func (n *importNames) split(d *tensorfile.DataSet) (ins, outs []tensorfile.Stored) {
	for _, s := range d.Stored {
		role := s.Role
		if role == tensorfile.AnyRole {
			role = tensorfile.InputRole
			if calledOf(n.inputs, s.Name) == "" && calledOf(n.outputs, s.Name) != "" {
				role = tensorfile.OutputRole
			}
		}
		if role == tensorfile.InputRole {
			ins = append(ins, s)
		} else {
			outs = append(outs, s)
		}
	}
	call := func(all []tensorfile.Stored, names []string) {
		named := slices.ContainsFunc(all, func(s tensorfile.Stored) bool { return calledOf(names, s.Name) != "" })
		for i, s := range all {
			switch name := calledOf(names, s.Name); {
			case name != "":
				all[i].Name = name
			case !named && s.Number >= 0 && s.Number < len(names):
				all[i].Name = names[s.Number]
			case s.Name == "":
				all[i].Name = filepath.Base(s.Where)
			}
		}
	}
	call(ins, n.inputs)
	call(outs, n.outputs)
	return ins, outs
}

// calledOf returns which of a model's names a stored one is, exactly or as a
// file name can have it; "" if none.
func calledOf(names []string, stored string) string {
	if i := slices.Index(names, stored); i >= 0 {
		return stored
	}
	if i := slices.IndexFunc(names, func(n string) bool { return npy.FileName(n, "") == stored }); i >= 0 {
		return names[i]
	}
	return ""
}

// match returns a data set's inputs and outputs in the order of m's.
func (n *importNames) match(m *outputs.Model, d *tensorfile.DataSet) (in, out [][]byte, err error) {
	ins, outs := n.split(d)
	var free []tensorfile.Stored
	for _, s := range ins {
		bound := n.bound[s.Name]
		if bound == nil {
			free = append(free, s)
			continue
		}
		t, err := d.Tensor(s)
		if err != nil {
			return nil, nil, err
		}
		if t.Elem != bound.Elem || !slices.Equal(t.Dims, bound.Dims) || !bytes.Equal(t.Data, bound.Data) {
			return nil, nil, fmt.Errorf("input %q is bound to another value, which decides a shape: import this data set on its own", s.Name)
		}
	}
	in, errIn := outputs.Match("input", m.Inputs, readable(d, free))
	out, errOut := outputs.Match("output", m.Outputs, readable(d, outs))
	return in, out, errors.Join(errIn, errOut)
}

func readable(d *tensorfile.DataSet, all []tensorfile.Stored) []outputs.Stored {
	stored := make([]outputs.Stored, len(all))
	for i, s := range all {
		stored[i] = outputs.Stored{Name: s.Name, Read: func(info popef.TensorInfo) ([]byte, error) { return d.Read(s, info) }}
	}
	return stored
}
