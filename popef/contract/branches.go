package contract

import (
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/popef/family"
)

// headerBranches is the first line of the canonical text of a fused model.
const headerBranches = "popefgen contract 4"

// Branch returns the name of the branch of a fused model whose run moves the field: a run input or
// output is called after it. It is "" for every other field.
func (f *Field) Branch(c *Callers) string {
	if name, _, ok := strings.Cut(f.Name, "/"); ok && f.runs() && slices.Contains(c.Branches, name) {
		return name
	}
	return ""
}

// branchesLine is the line of the text that names the branches, "" if there are none.
func (c *Callers) branchesLine() string {
	if c.Branches == nil {
		return ""
	}
	return "branches " + strings.Join(c.Branches, " ") + "\n"
}

// branches reads what follows the device iterations in the text of a fused model.
func (p *parser) branches(c *Callers) {
	p.word("branches")
	for p.err == nil && p.skip(" ") {
		at := strings.IndexAny(p.rest+"\n", " \n")
		c.Branches = append(c.Branches, p.rest[:at])
		p.rest = p.rest[at:]
	}
	if err := family.CheckBranchNames(c.Branches); err != nil {
		p.fail("names of branches: " + err.Error())
	}
	p.newline()
	for p.err == nil && p.rest != "" {
		f := p.field(nil)
		if f.runs() && f.Branch(c) == "" {
			p.fail("a run input or output that is called after a branch")
		}
		if f.Transfers > 0 {
			p.fail("no number of transfers: a branch makes one")
		}
		c.Fields = append(c.Fields, f)
		p.newline()
	}
}

// fused judges which branches there are, and returns the new fields that are left: those of a
// branch that is new, or gone, come and go with it.
func (j *judge) fused(added []int) []int {
	old, new := &j.old.Callers, &j.new.Callers
	if (old.Branches == nil) != (new.Branches == nil) {
		r := ruling{Breaking, false, "a fused model has types and methods for each branch, and one model has Run, Inputs and Outputs", adapt}
		j.add(KindBranches, r, "branches", "", fmt.Sprint(old.Branches), fmt.Sprint(new.Branches))
		return added
	}
	for _, name := range old.Branches {
		if slices.Contains(new.Branches, name) {
			continue
		}
		j.gone = append(j.gone, name)
		is := family.BranchGoName(name)
		j.found = append(j.found, Finding{Kind: KindBranchRemoved, Verdict: Breaking, What: fmt.Sprintf("branch %q", name), Old: "there",
			Why: fmt.Sprintf("callers of Run%s do not build, nor does what names Branch%s, Inputs%s or Outputs%s", is, is, is, is), Do: "adapt the callers, or compile the model with it"})
	}
	for _, name := range new.Branches {
		if slices.Contains(old.Branches, name) {
			continue
		}
		added = slices.DeleteFunc(added, func(at int) bool { return new.Fields[at].Branch(new) == name })
		j.found = append(j.found, Finding{Kind: KindBranchAdded, Verdict: Compatible, Opens: true, What: fmt.Sprintf("branch %q", name), New: "there",
			Why: "callers may ignore it", Do: again + fmt.Sprintf(" to call Run%s", family.BranchGoName(name))})
	}
	common := func(a, b []string) []string {
		return slices.DeleteFunc(slices.Clone(a), func(name string) bool { return !slices.Contains(b, name) })
	}
	j.add(KindOrder, ruling{Compatible, true, "the constants of type Branch have other values, and Branches lists them in another order", again}, "order of the branches", "",
		fmt.Sprint(common(old.Branches, new.Branches)), fmt.Sprint(common(new.Branches, old.Branches)))
	return added
}

// structName is what generated code calls the struct of a field.
func (c *Callers) structName(f *Field) string {
	return f.Group.String() + family.BranchGoName(f.Branch(c))
}
