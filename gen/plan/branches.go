package plan

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/family"
)

// Branch is one of the models of which a fused model was made: a request runs one.
type Branch struct {
	Name    string  // in the model
	GoName  string  // in names of types and methods
	Const   string  // its constant of type Branch
	Inputs  []Field // those of Plan.Inputs that its runs read
	Outputs []Field // those of Plan.Outputs that its runs fill
}

// branches names the branches, and refuses options that a fused model has no meaning for.
func (b *builder) branches() {
	p := &b.plan
	for _, name := range p.Contract.Branches {
		is := family.BranchGoName(name)
		p.Branches = append(p.Branches, Branch{Name: name, GoName: is, Const: "Branch" + is})
	}
	if p.Branches == nil {
		return
	}
	for i := range p.Branches {
		// RunX on one replica is RunXOn, and a fake has the fields RunXFunc and RunXOnFunc.
		for _, end := range []string{"On", "Func", "OnFunc"} {
			is := p.Branches[i].GoName + end
			if at := slices.IndexFunc(p.Branches, func(o Branch) bool { return o.GoName == is }); at >= 0 {
				b.problem("branch %q: branch %q has a Run%s too; call one of them otherwise when they are compiled", p.Branches[at].Name, p.Branches[i].Name, is)
			}
		}
		if p.Branches[i].GoName == "Save" && slices.ContainsFunc(p.Anchors, func(a Anchor) bool { return a.Role == contract.SaveOutput }) {
			b.problem("branch %q: the package binds the outputs of its save programs under this name; call the branch otherwise when it is compiled", p.Branches[i].Name)
		}
	}
	if b.opts.BatchDim != nil || b.opts.Pack != nil || len(b.opts.State) > 0 {
		b.problem("samples, packing and states: they are for a package of one model, and this one has %d branches; generate one for them", len(p.Branches))
		b.opts.BatchDim, b.opts.Pack, b.opts.State = nil, nil, nil
	}
}

// branchNames takes the names that branches declare.
func (b *builder) branchNames(n *names) {
	for _, x := range b.plan.Branches {
		for _, id := range []string{x.Const, "Inputs" + x.GoName, "Outputs" + x.GoName, "NewInputs" + x.GoName, "NewOutputs" + x.GoName} {
			if who := n.owner[id]; who != "" {
				b.problem("branch %q: the name %s is taken by %s; call the branch otherwise when it is compiled", x.Name, id, who)
			}
			n.owner[id] = fmt.Sprintf("branch %q", x.Name)
		}
	}
}

// branchFields gives every branch its fields.
func (b *builder) branchFields() {
	p := &b.plan
	at := map[string]*Branch{}
	for i := range p.Branches {
		at[p.Branches[i].Name] = &p.Branches[i]
	}
	of := func(f Field) *Branch { return at[p.Contract.Fields[f.Anchor].Branch(&p.Contract)] }
	if p.Branches == nil {
		return
	}
	for _, f := range p.Inputs {
		x := of(f)
		x.Inputs = append(x.Inputs, f)
	}
	for _, f := range p.Outputs {
		x := of(f)
		x.Outputs = append(x.Outputs, f)
	}
}

// probeFused makes the probe's contract that of a fused model of one branch.
func probeFused(of *contract.Contract) {
	of.Branches = []family.Branch{{Name: ProbeBranch, Program: 10}}
}
