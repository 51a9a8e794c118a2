package plan

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// ErrBuild marks every error by which [Build] refuses a model or its options.
var ErrBuild = errors.New("no package can be generated")

// Build decides everything about the package of model m, whose files have the
// names d for themselves. It reads the model's metadata, its executable only where samples
// are told apart ([Options.BatchDim]), and never its data. Every mistake in the
// options and every anchor that Go has no type for is reported in one error
// that wraps [ErrBuild].
func Build(m *popef.Model, opts Options, d *Declared) (*Plan, error) {
	ctx := opts.Context
	if ctx == nil {
		ctx = context.Background()
	}
	if err := budget.From(ctx).Take(needs(m), "the package of %d anchors", len(m.Metadata.Anchors)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBuild, err)
	}
	b := &builder{model: m, opts: opts, declared: d}
	for _, pass := range passes() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		pass(b)
	}
	if len(b.problems) > 0 {
		return nil, &buildError{model: b.plan.Model, problems: b.problems}
	}
	return &b.plan, nil
}

// What a package takes until it is written, text and what it is formatted from: bytes
// for each anchor, and for each byte of its names, which stand in many places.
const (
	anchorNeeds = 48 << 10
	nameNeeds   = 128
)

// needs returns the most bytes that deciding about, rendering and formatting the
// package of a model may take.
func needs(m *popef.Model) (n int64) {
	for i := range m.Metadata.Anchors {
		a := &m.Metadata.Anchors[i]
		names := len(a.Name) + len(a.Handle) + 8*len(a.Info.Shape) + 4*len(a.Programs)
		n = budget.Add(n, anchorNeeds, budget.Mul(nameNeeds, int64(names)))
	}
	return n
}

// passes lists what Build does, in order. Every pass reads what earlier ones
// left in the plan.
func passes() []func(*builder) {
	return []func(*builder){
		(*builder).settings,
		(*builder).contract,
		(*builder).refuseTraining,
		(*builder).family,
		(*builder).branches,
		(*builder).tensors,
		(*builder).states,
		(*builder).openInputs,
		(*builder).samples,
		(*builder).flow,
		(*builder).packing,
		(*builder).renames,
		(*builder).name,
		(*builder).packedNames,
		(*builder).fields,
		(*builder).training,
		(*builder).joined,
		(*builder).served,
		(*builder).stateFields,
		(*builder).document,
		(*builder).branchFields,
		(*builder).files,
	}
}

// builder is the state of one Build.
type builder struct {
	model    *popef.Model
	opts     Options
	plan     Plan
	problems []string
	declared *Declared // nil for the plans of Probes
	probe    func(*contract.Contract)

	metas   []*popef.Anchor // per anchor of the plan, that of the model
	tensor  []int           // per anchor, its index in plan.Tensors
	renamed []string        // per tensor, the Go name that the caller gave it

	renamedValues map[int]string // of values of the optimizer: the Go name that the caller gave, by field of the contract

	statePairs [][2]int // anchors of states: input and output
	cached     []cached // of these, what grows

	// Of a family: the names of lengths, parameters with the names of what they are, and what lengths
	// follow from with their names.
	sizes  map[string]bool
	params map[string]string
	rules  map[SizeField]string
}

// buildError lists every problem of a model.
type buildError struct {
	model    string
	problems []string
}

func (e *buildError) Error() string {
	model := e.model
	if !strconv.CanBackquote(model) {
		model = strconv.Quote(model)
	}
	if len(e.problems) == 1 {
		return model + ": " + e.problems[0]
	}
	return fmt.Sprintf("%s: %d problems:\n  %s", model, len(e.problems), strings.Join(e.problems, "\n  "))
}

func (e *buildError) Unwrap() error { return ErrBuild }

func (b *builder) problem(format string, args ...any) {
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

// settings decides what comes from the options alone.
func (b *builder) settings() {
	p := &b.plan
	p.Model = b.opts.ModelBase
	if files := b.model.Files(); p.Model == "" && len(files) > 0 {
		p.Model = filepath.Base(files[0])
	}
	if p.Model == "" {
		p.Model = "model.popef"
	}
	if strings.ContainsFunc(p.Model, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError || printable.Hidden(r) }) {
		b.problem("model name %q: it has characters that can't stand in a comment; rename the file", p.Model)
	}
	p.Package = b.opts.Package
	if p.Package == "" {
		p.Package = PackageName(p.Model, b.declared)
	} else if err := checkPackage(p.Package, b.declared); err != nil {
		b.problem("%v", err)
	}
	p.QueueDepth = b.opts.QueueDepth
	if p.QueueDepth == 0 {
		p.QueueDepth = DefaultQueueDepth
	}
	if p.QueueDepth < 1 || p.QueueDepth > maxQueueDepth {
		b.problem("queue depth %d: want 1 to %d", p.QueueDepth, maxQueueDepth)
	}
	p.Embed = b.opts.Embed
	if p.Embed != "" {
		if err := checkEmbed(p.Embed); err != nil {
			b.problem("%v", err)
		}
	}
	if files := b.model.Files(); len(files) > 1 {
		for _, f := range files {
			p.Parts = append(p.Parts, filepath.Base(f))
		}
	}
	p.Tests = b.opts.Tests
	if b.opts.Serve {
		p.Serve = &Serve{} // which served fills
	}
	p.ModelEnv = "POPEFGEN_MODEL_DIR"
}

// checkEmbed returns why go:embed can't take a file of that name, or why it
// would be taken for something else.
func checkEmbed(name string) error {
	for _, r := range name {
		if r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-+", r) {
			return fmt.Errorf("embedded model %q: the name of an embedded file may have only ASCII letters, digits and ._-+; rename the file", name)
		}
	}
	if name == contract.FileName {
		return fmt.Errorf("embedded model %q: the package's contract has this name; rename the file", name)
	}
	if strings.ContainsAny(name[:1], "._-+") || filepath.Ext(name) == ".go" {
		return fmt.Errorf("embedded model %q: want a name that starts with a letter or digit and does not end in .go", name)
	}
	return nil
}

// contract records what caller and model agree on.
func (b *builder) contract() {
	p, meta := &b.plan, &b.model.Metadata
	c := contract.Of(b.model)
	if c.Refused != nil {
		b.problem("%v", c.Refused)
	}
	if b.probe != nil {
		b.probe(&c)
	}
	p.Contract = c.Callers()
	p.ContractText = p.Contract.Text()
	p.ContractHash = p.Contract.Hash()
	p.Pin = "Contract" + p.ContractHash[:8]
	p.DeviceIterations = max(1, int(meta.DeviceIterations))
	p.Replicas = meta.ReplicationFactor
	b.anchors(c)
}

// anchors lists the anchors that callers see, in the contract's order: what
// callers do not see leaves no trace in the package.
func (b *builder) anchors(c contract.Contract) {
	p := &b.plan
	first := map[string]string{} // anchors by stream handle
	names := map[string]int{}    // of run inputs and outputs
	for i, a := range c.Visible() {
		size, err := a.Info.SizeInBytes()
		if err != nil {
			b.problem("anchor %q: %v", a.Name, err)
		}
		other, taken := first[a.Handle]
		switch {
		case a.Handle == "":
			b.problem("anchor %q: this %s has no stream handle, so that nothing can be connected to it", a.Name, a.Role)
		case taken:
			b.problem("anchor %q: its stream handle %q is that of anchor %q too", a.Name, a.Handle, other)
		}
		first[a.Handle] = a.Name
		if a.Group() == contract.OptimizerValues { // no tensor: it comes last, in a field of another kind
			continue
		}
		out := Anchor{Name: a.Name, Handle: p.Contract.Fields[i].Handle, Memory: a.Handle, Role: a.Role, Transfers: c.Transfers(&a), Info: p.Contract.InfoText(i), Bytes: size}
		if a.Repeats > 1 {
			out.Info += fmt.Sprintf(" repeated %d times", a.Repeats)
			out.Bytes *= int64(a.Repeats)
		}
		if a.Role == contract.RunInput || a.Role == contract.RunOutput {
			names[a.Name]++
		}
		p.Anchors, b.metas = append(p.Anchors, out), append(b.metas, &b.model.Metadata.Anchors[a.Index])
	}
	for i := range p.Anchors {
		if a := &p.Anchors[i]; names[a.Name] == 1 {
			a.Memory = a.Name
		}
	}
}

// group returns the fields that an anchor belongs to.
func (p *Plan) group(i int) *[]Field {
	return map[contract.Group]*[]Field{
		contract.Inputs: &p.Inputs, contract.Outputs: &p.Outputs, contract.LoadInputs: &p.LoadInputs, contract.SaveOutputs: &p.SaveOutputs,
	}[p.Contract.Fields[i].Group]
}

// tensors gives every anchor that the caller sees a Go type. Anchors of one
// name, type and shape in different structs share it: what Save delivered can
// then be given to Open.
func (b *builder) tensors() {
	p := &b.plan
	type key struct{ name, info string }
	shared := map[key][]int{}             // tensors of that key
	member := map[*[]Field]map[int]bool{} // tensors that a struct holds already
	b.tensor = make([]int, len(p.Anchors))
	for i := range p.Anchors {
		a := p.Anchors[i]
		g := p.group(i)
		t := b.newTensor(a, b.metas[i])
		if p.Contract.Fields[i].Open() {
			b.open(&t, &p.Contract.Fields[i])
			t.Bytes = t.Elements * int64(b.metas[i].Info.DataType.Size())
		}
		k := key{a.Name, a.Info}
		if member[g] == nil {
			member[g] = map[int]bool{}
		}
		at := slices.IndexFunc(shared[k], func(t int) bool { return !member[g][t] })
		if at >= 0 {
			b.tensor[i] = shared[k][at]
		} else {
			b.tensor[i] = len(p.Tensors)
			shared[k] = append(shared[k], len(p.Tensors))
			p.Tensors = append(p.Tensors, t)
		}
		member[g][b.tensor[i]] = true
		if t.IsOpen() {
			b.checkOpen(i, &t)
			continue
		}
		b.checkSize(a, b.metas[i].Info.DataType, t.Shape)
	}
	b.renamed, b.renamedValues = make([]string, len(p.Tensors)), map[int]string{}
}

// newTensor returns the type of an anchor, without names.
func (b *builder) newTensor(a Anchor, meta *popef.Anchor) Tensor {
	t := Tensor{Anchor: a.Name, Shape: meta.Info.Shape, Elem: elem(meta.Info.DataType), Bytes: a.Bytes}
	if size := int64(meta.Info.DataType.Size()); size > 0 {
		t.Elements = a.Bytes / size
	}
	if meta.Repeats > 1 {
		t.Shape = slices.Concat([]int64{int64(meta.Repeats)}, t.Shape)
	}
	return t
}

// elem returns the Go type of one element.
func elem(t popef.DataType) string {
	switch t {
	case popef.Bool:
		return "bool"
	case popef.F8:
		return "rt.Float8"
	case popef.F16:
		return "rt.Float16"
	case popef.F32:
		return "float32"
	case popef.F64:
		return "float64"
	case popef.S8:
		return "int8"
	case popef.U8:
		return "uint8"
	case popef.S16:
		return "int16"
	case popef.U16:
		return "uint16"
	case popef.S32:
		return "int32"
	case popef.U32:
		return "uint32"
	case popef.S64:
		return "int64"
	case popef.U64:
		return "uint64"
	case popef.F8143:
		return "rt.Float8E4M3"
	case popef.F8152:
		return "rt.Float8E5M2"
	}
	return ""
}

// checkSize refuses tensors that Go has no array type for: Go counts the
// size of every inner array, even where an outer length of 0 leaves nothing.
func (b *builder) checkSize(a Anchor, t popef.DataType, shape []int64) {
	if elem(t) == "" {
		b.problem("anchor %q: %s has no Go type", a.Name, t)
		return
	}
	size := int64(t.Size())
	for i := len(shape) - 1; i >= 0; i-- {
		n := shape[i]
		if n > maxBytes || size > 0 && n > maxBytes/size {
			b.problem("anchor %q: %s: a Go array of more than %d bytes can't be declared", a.Name, a.Info, int64(maxBytes))
			return
		}
		size *= n
	}
	if n := int64(a.Transfers); size > maxBytes/n {
		b.problem("anchor %q: %s times %d device iterations: a Go array of more than %d bytes can't be declared",
			a.Name, a.Info, n, int64(maxBytes))
	}
}

// checkOpen is checkSize of a tensor with open dimensions, in each of its sizes.
func (b *builder) checkOpen(i int, t *Tensor) {
	a, c := b.plan.Anchors[i], &b.plan.Contract
	for m := range c.Members {
		b.checkSize(a, b.metas[i].Info.DataType, c.Shape(i, m))
	}
	if t.Bytes == 0 {
		b.problem("anchor %q: %s has no elements, whatever its open dimensions are", a.Name, a.Info)
	}
}

// fields fills the structs.
func (b *builder) fields() {
	p := &b.plan
	for i := range p.Anchors {
		a := &p.Anchors[i]
		g := p.group(i)
		t := b.tensor[i]
		a.GoName = p.Tensors[t].Name
		*g = append(*g, Field{
			Name: a.GoName, Tensor: t, Anchor: i,
			Iterated: a.Transfers > 1, Transfers: a.Transfers, Uneven: p.Contract.Fields[i].Transfers > 0,
		})
	}
}

// Ends of file names.
const (
	ContractSuffix = "_contract.go" // what the runtime compares and resolves
	ModelSuffix    = "_model.go"    // the interface of the runner, and a fake of it
	serveTests     = "_serve_test.go"
	ServeSuffix    = "_serve.go" // what serves the model, and a client of a server
)

// files lists what the package consists of.
func (b *builder) files() {
	p := &b.plan
	base := strings.ReplaceAll(p.Package, "_", "")
	p.Files = []string{base + ".go", base + ContractSuffix, base + ModelSuffix}
	p.Queues = len(p.Inputs)+len(p.Outputs) > 0 && !b.opts.NoQueues && p.Family == nil && p.Branches == nil && !p.Uneven() && p.Training == nil
	if p.Serve != nil {
		p.Files = append(p.Files, base+ServeSuffix)
	}
	if p.Tests {
		p.Files = append(p.Files, base+"_test.go")
		if p.Serve != nil {
			p.Files = append(p.Files, base+serveTests)
		}
	}
	p.Files = append(p.Files, contract.FileName)
	if p.Embed != "" {
		p.Files = append(p.Files, p.Embed)
	}
}
