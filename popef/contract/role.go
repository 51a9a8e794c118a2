package contract

import (
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/popef"
)

// Role says what an anchor is to a program that runs the model.
type Role uint8

// The roles. Which of them an anchor has is decided by the first rule that
// fits, in this order:
//
//  1. An anchor whose programs are recorded, but of which none is in the
//     program flow, is [Unused]: PopART's read-back of weights in an inference
//     model, whose save flow is empty.
//  2. An output is a [RunOutput] if a main program moves it, also if load or
//     save programs do so as well (TensorFlow's updated variables are moved by
//     load and main); else a [SaveOutput] if a save program does, else a
//     [LoadOutput].
//  3. An output without recorded programs is treated like one of a main
//     program, hence a [RunOutput], with one exception: if it shares its name
//     with an input that the files carry data for, it reads a weight or a
//     state back, as in PopART's files before programs were recorded. Such an
//     output is a [SaveOutput], or [Unused] if the save flow is empty.
//  4. An input placed in a remote buffer is a [RemoteBuffer].
//  5. An input whose handle is the model's seed handle is the [Seed], with or
//     without data. A seed handle without such an anchor (TensorFlow) is
//     nothing.
//  6. An input that the files carry data for is [LoadData], also if a main
//     program moves it: the runtime then feeds it in every run. If a load program alone moves it and has
//     PopART's name, the role says more: it is [Optimizer] with the program OptimizerFromHost, [RandomState] with RngStateFromHost,
//     and [State] with WeightsFromHost where its name is that of state of another such input, as Accl___w is of w, or that of what automatic loss scaling remembers.
//  7. An input without data is a [LoadInput] if a load or save program moves
//     it, also if a main program does so as well (TensorFlow's variables): its
//     value is given once, and moved again wherever a program asks.
//  8. Every other input without data is a [RunInput]; so is one without
//     recorded programs.
//
// An anchor of unknown type counts as an input for rules 4 to 6, since files
// carry data only for inputs; without data nobody knows which way it moves,
// and it is [Unused].
const (
	// Unused: no program of the flow moves it, or nobody knows which way.
	Unused Role = iota
	// RunInput: the caller gives it with every run.
	RunInput
	// RunOutput: every run delivers it to the caller.
	RunOutput
	// LoadData: the files carry its data, the runtime feeds it.
	LoadData
	// LoadInput: the caller gives it once, before the load programs run.
	LoadInput
	// SaveOutput: the save programs deliver it.
	SaveOutput
	// LoadOutput: only load programs deliver it.
	LoadOutput
	// RemoteBuffer: it lives in a remote buffer and its data in the files.
	RemoteBuffer
	// Seed: the random seed. The caller gives it, before the load programs
	// run, if [Anchor.HasData] is false, and may override it otherwise.
	Seed
	// State: the files carry what an optimizer keeps for a weight, or its gradient accumulator. It is
	// loaded and saved with the weights, and changes as they do.
	State
	// Optimizer: the files carry a value of the optimizer, such as the learning rate.
	Optimizer
	// RandomState: the files carry the state of random numbers.
	RandomState
	numRoles
)

var roleNames = [numRoles]string{"unused", "run input", "run output", "load data", "load input",
	"save output", "load output", "remote buffer", "seed", "state", "optimizer", "random state"}

// String returns the role in words, such as "run input".
func (r Role) String() string {
	if r < numRoles {
		return roleNames[r]
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// Roles returns the role of every anchor of a model, in the order of its
// metadata.
func Roles(m *popef.Model) []Role {
	c := Of(m)
	roles := make([]Role, len(c.Anchors))
	for _, a := range c.Anchors {
		roles[a.Index] = a.Role
	}
	return roles
}

// roles applies the rules to every anchor.
func (c *Contract) roles(programs []popef.ProgramInfo) []Role {
	var carried []string // names of inputs with data, for rules 3 and 6
	for _, a := range c.Anchors {
		if a.Type == popef.Input && a.HasData {
			carried = append(carried, a.Name)
		}
	}
	slices.Sort(carried)
	load, main, save := setOf(c.Flow.Load), setOf(c.Flow.Main), setOf(c.Flow.Save)
	named := map[uint32]string{}
	for _, p := range programs {
		named[p.Index] = p.Name
	}
	roles := make([]Role, len(c.Anchors))
	for i := range c.Anchors {
		a := &c.Anchors[i]
		_, readBack := slices.BinarySearch(carried, a.Name)
		roles[i] = c.role(a, readBack, moves(load, a), moves(main, a), moves(save, a))
		if roles[i] == LoadData && a.Type == popef.Input && len(a.Programs) == 1 && load[a.Programs[0]] {
			roles[i] = loaded(named[a.Programs[0]], a.Name, carried)
		}
	}
	return roles
}

// statePrefixes are what PopART puts before the name of a weight to make those of its states.
var statePrefixes = []string{"Accl___", "Accl1___", "Accl2___", "Accl3___", "Accum___", "Step___", "Master___"}

// stateNames are the names of states that belong to no single weight: what automatic loss scaling remembers.
var stateNames = []string{"lossScaleUpdateFactor", "lossScaleUpdateOver", "lossScaleUpdateSteps"}

// loaded returns the role of an input with data that only the load program of that name moves.
func loaded(program, name string, carried []string) Role {
	switch program {
	case "OptimizerFromHost":
		return Optimizer
	case "RngStateFromHost":
		return RandomState
	case "WeightsFromHost":
		if slices.Contains(stateNames, name) {
			return State
		}
		for _, prefix := range statePrefixes {
			if of, ok := strings.CutPrefix(name, prefix); ok {
				if _, there := slices.BinarySearch(carried, of); there {
					return State
				}
			}
		}
	}
	return LoadData
}

// role applies the rules to one anchor; readBack says whether an input of its
// name has data, load, main and save which programs move it.
func (c *Contract) role(a *Anchor, readBack, load, main, save bool) Role {
	recorded := len(a.Programs) > 0
	if recorded && !load && !main && !save {
		return Unused
	}
	switch a.Type {
	case popef.Output:
		switch {
		case !recorded && readBack && len(c.Flow.Save) > 0:
			return SaveOutput
		case !recorded && readBack:
			return Unused
		case !recorded || main:
			return RunOutput
		case save:
			return SaveOutput
		}
		return LoadOutput
	case popef.Input, popef.Unknown:
		switch {
		case a.RemoteBuffer:
			return RemoteBuffer
		case a.Handle != "" && a.Handle == c.SeedHandle:
			return Seed
		case a.HasData:
			return LoadData
		case a.Type == popef.Unknown:
			return Unused
		case load || save:
			return LoadInput
		}
		return RunInput
	}
	return Unused // a type of a newer format
}

// setOf returns programs as a set: files may list very many.
func setOf(programs []uint32) map[uint32]bool {
	set := make(map[uint32]bool, len(programs))
	for _, p := range programs {
		set[p] = true
	}
	return set
}

// moves reports whether one of the programs moves an anchor.
func moves(programs map[uint32]bool, a *Anchor) bool {
	return slices.ContainsFunc(a.Programs, func(p uint32) bool { return programs[p] })
}
