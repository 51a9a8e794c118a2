package cpu

import (
	"fmt"
	"strings"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
)

// fits returns why an engine of the plan may not be loaded if it takes more than
// limit bytes.
func (p *Plan) fits(limit int64) error {
	need := budget.Add(p.ArenaBytes, p.PersistentBytes, p.PackedBytes, p.TableBytes)
	if need <= limit {
		return nil
	}
	what := fmt.Sprintf("%s for local tensors, %s for persistent ones, %s for packed weights, %s for tables of kernels",
		budget.Text(p.ArenaBytes), budget.Text(p.PersistentBytes), budget.Text(p.PackedBytes), budget.Text(p.TableBytes))
	if most := p.greatest(); most != "" {
		what += "; most of all " + most
	}
	return &ipu.Error{Kind: ipu.KindMemory, Message: fmt.Sprintf("it needs %s (%s), more than the limit of %s; %s",
		budget.Text(need), what, budget.Text(limit), budget.Advice)}
}

// greatest names the greatest block of memory and the step that needs it first.
func (p *Plan) greatest() string {
	size, text := int64(0), ""
	for i := range p.Programs {
		g := &p.Programs[i]
		for k := range g.Buffers {
			b := &g.Buffers[k]
			if b.Part || b.Bytes <= size {
				continue
			}
			size = b.Bytes
			what := "scratch memory"
			if len(b.Names) > 0 {
				what = fmt.Sprintf("tensor %q", b.Names[0])
			}
			s := &g.Steps[b.First]
			text = strings.TrimSpace(fmt.Sprintf("%s of %s", budget.Text(size), what))
			if s.Op != "" {
				text += fmt.Sprintf(" of node %q (%s)", s.Name, s.Op)
			}
		}
	}
	for i := range p.Persistent {
		if t := &p.Persistent[i]; t.Stored && t.Bytes > size {
			size, text = t.Bytes, fmt.Sprintf("%s of persistent tensor %q", budget.Text(t.Bytes), t.Name)
		}
	}
	return text
}
