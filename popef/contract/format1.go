package contract

import "github.com/popefgen/popefgen/popef"

// header1 is the first line of format 1, which older generated packages have.
// It held every anchor of the model, sorted, also those that callers do not
// see:
//
//	popefgen contract 1
//	replicas 1
//	ipus 1
//	iterations 1
//	seed ""
//	load 0
//	main 5
//	save
//	anchor "image" input F32 [4 1 28 28] handle "h2d_image" programs [5]
//	anchor "w" input F16 [10] handle "h2d_w" programs [0] per-replica remote repeats 2 data
const header1 = "popefgen contract 1"

// parse1 reads the text of a contract in format 1. That it is canonical is
// vouched for by the hash that stands behind it.
func parse1(text string) (Contract, error) {
	p := parser{rest: text, line: 1}
	var c Contract
	p.word(header1)
	p.newline()
	for _, n := range []struct {
		key   string
		value *uint32
	}{{"replicas ", &c.Replicas}, {"ipus ", &c.IPUs}, {"iterations ", &c.Iterations}} {
		p.word(n.key)
		*n.value = p.number()
		p.newline()
	}
	p.word("seed ")
	c.SeedHandle = p.quoted()
	p.newline()
	for _, f := range []struct {
		key      string
		programs *[]uint32
	}{{"load", &c.Flow.Load}, {"main", &c.Flow.Main}, {"save", &c.Flow.Save}} {
		p.word(f.key)
		for p.skip(" ") {
			*f.programs = append(*f.programs, p.number())
		}
		p.newline()
	}
	for p.err == nil && p.rest != "" {
		a := p.anchor()
		a.Index = len(c.Anchors)
		c.Anchors = append(c.Anchors, a)
		p.newline()
	}
	if p.err != nil {
		return Contract{}, p.err
	}
	c.settle(nil)
	return c, nil
}

func (p *parser) anchor() Anchor {
	var a Anchor
	p.word("anchor ")
	a.Name = p.quoted()
	p.word(" ")
	a.Type = popef.TensorType(p.enumerated("a direction",
		func(v uint16) string { return popef.TensorType(v).String() },
		func(v uint16) bool { return popef.TensorType(v).Valid() }))
	p.word(" ")
	a.Info = p.info()
	p.word(" handle ")
	a.Handle = p.quoted()
	p.word(" programs ")
	p.list(func() { a.Programs = append(a.Programs, p.number()) })
	a.PerReplica = p.skip(" per-replica")
	a.RemoteBuffer = p.skip(" remote")
	a.Repeats = 1
	if p.skip(" repeats ") {
		a.Repeats = p.number()
	}
	a.HasData = p.skip(" data")
	return a
}
