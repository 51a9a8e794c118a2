package contract_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/popeftest"
)

// TestRoles goes through the rules one by one. The flow is load [0 1], main
// [5], save [7] unless a case says otherwise.
func TestRoles(t *testing.T) {
	const in, out, unknown = popef.Input, popef.Output, popef.Unknown
	noSave := popef.ProgramFlow{Load: []uint32{0}, Main: []uint32{5}}
	info := popef.TensorInfo{DataType: popef.F32, Shape: []int64{2}}
	type role = contract.Role
	for _, c := range []struct {
		name   string
		anchor popef.Anchor
		data   bool // the file has data for the anchor's name
		twin   bool // an input of the same name stands beside it
		flow   *popef.ProgramFlow
		want   role
	}{
		{"run input", popef.Anchor{Type: in, Programs: []uint32{5}}, false, false, nil, contract.RunInput},
		{"run input, programs not recorded", popef.Anchor{Type: in}, false, false, nil, contract.RunInput},
		{"run input of which the file has data", popef.Anchor{Type: in, Programs: []uint32{5}}, true, false, nil, contract.LoadData},
		{"weight", popef.Anchor{Type: in, Programs: []uint32{0}}, true, false, nil, contract.LoadData},
		{"weight, programs not recorded", popef.Anchor{Type: in}, true, false, nil, contract.LoadData},
		{"weight of unknown type", popef.Anchor{Type: unknown}, true, false, nil, contract.LoadData},
		{"unknown type without data", popef.Anchor{Type: unknown}, false, false, nil, contract.Unused},
		{"unknown type in main", popef.Anchor{Type: unknown, Programs: []uint32{5}}, false, false, nil, contract.Unused},
		{"load input", popef.Anchor{Type: in, Programs: []uint32{0}}, false, false, nil, contract.LoadInput},
		{"input of load and main", popef.Anchor{Type: in, Programs: []uint32{0, 5}}, false, false, nil, contract.LoadInput},
		{"input of save", popef.Anchor{Type: in, Programs: []uint32{7}}, false, false, nil, contract.LoadInput},
		{"input of no flow", popef.Anchor{Type: in, Programs: []uint32{4}}, false, false, nil, contract.Unused},
		{"data of no flow", popef.Anchor{Type: in, Programs: []uint32{4}}, true, false, nil, contract.Unused},
		{"run output", popef.Anchor{Type: out, Programs: []uint32{5}}, false, false, nil, contract.RunOutput},
		{"run output, programs not recorded", popef.Anchor{Type: out}, false, false, nil, contract.RunOutput},
		{"output of load and main", popef.Anchor{Type: out, Programs: []uint32{0, 5}}, false, false, nil, contract.RunOutput},
		{"output of main and save", popef.Anchor{Type: out, Programs: []uint32{5, 7}}, false, false, nil, contract.RunOutput},
		{"save output", popef.Anchor{Type: out, Programs: []uint32{7}}, false, false, nil, contract.SaveOutput},
		{"load output", popef.Anchor{Type: out, Programs: []uint32{0}}, false, false, nil, contract.LoadOutput},
		{"weight's output without save flow", popef.Anchor{Type: out, Programs: []uint32{7}}, true, true, &noSave, contract.Unused},
		{"weight's output, programs not recorded", popef.Anchor{Type: out}, true, true, nil, contract.SaveOutput},
		{"the same without save flow", popef.Anchor{Type: out}, true, true, &noSave, contract.Unused},
		{"output that shares its name with a run input", popef.Anchor{Type: out}, false, true, nil, contract.RunOutput},
		{"remote buffer", popef.Anchor{Type: in, Programs: []uint32{0}, RemoteBuffer: true}, true, false, nil, contract.RemoteBuffer},
		{"remote buffer without data", popef.Anchor{Type: in, RemoteBuffer: true}, false, false, nil, contract.RemoteBuffer},
		{"output in a remote buffer", popef.Anchor{Type: out, Programs: []uint32{5}, RemoteBuffer: true}, false, false, nil, contract.RunOutput},
		{"seed", popef.Anchor{Type: in, Programs: []uint32{1}, Handle: "seed"}, false, false, nil, contract.Seed},
		{"seed with data", popef.Anchor{Type: in, Programs: []uint32{1}, Handle: "seed"}, true, false, nil, contract.Seed},
		{"seed that no program moves", popef.Anchor{Type: in, Programs: []uint32{2}, Handle: "seed"}, true, false, nil, contract.Unused},
		{"output with the seed's handle", popef.Anchor{Type: out, Programs: []uint32{5}, Handle: "seed"}, false, false, nil, contract.RunOutput},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := popeftest.ModelA()
			f.Metadata.SeedHandle = "seed"
			f.Metadata.ProgramFlow = popef.ProgramFlow{Load: []uint32{0, 1}, Main: []uint32{5}, Save: []uint32{7}}
			if c.flow != nil {
				f.Metadata.ProgramFlow = *c.flow
			}
			c.anchor.Name, c.anchor.Info = "x", info
			f.Metadata.Anchors = []popef.Anchor{c.anchor}
			if c.twin {
				f.Metadata.Anchors = append(f.Metadata.Anchors, popef.Anchor{Name: "x", Handle: "in", Type: popef.Input, Info: info})
			}
			f.Tensors = nil
			if c.data {
				f.Tensors = []popeftest.Tensor{{Name: "x", Info: info, Data: make([]byte, 8)}}
			}
			require.Equal(t, c.want, contract.Roles(f.Load(t))[0])
		})
	}
}

// TestRolesOfTraining has what programs with PopART's names load, beside a weight w.
func TestRolesOfTraining(t *testing.T) {
	info := popef.TensorInfo{DataType: popef.F32}
	for name, want := range map[string]contract.Role{
		"Accl1___w": contract.State, "Step___w": contract.State, "Master___w": contract.State, "Accl1___v": contract.LoadData,
		"lossScaleUpdateFactor": contract.State, "lossScaleUpdateOver": contract.State, "lossScaleUpdateSteps": contract.State, "lossScale": contract.LoadData,
	} {
		f := popeftest.ModelA()
		f.Metadata.ProgramFlow = popef.ProgramFlow{Load: []uint32{0}, Main: []uint32{5}}
		f.Metadata.Programs = []popef.ProgramInfo{{Index: 0, Name: "WeightsFromHost"}, {Index: 5, Name: "Program"}}
		f.Metadata.Anchors, f.Tensors = nil, nil
		for _, n := range []string{name, "w"} {
			f.Metadata.Anchors = append(f.Metadata.Anchors, popef.Anchor{Name: n, Handle: n, Type: popef.Input, Info: info, Programs: []uint32{0}})
			f.Tensors = append(f.Tensors, popeftest.Tensor{Name: n, Info: info, Data: make([]byte, 4)})
		}
		require.Equal(t, []contract.Role{want, contract.LoadData}, contract.Roles(f.Load(t)), name)
	}
}

func TestRoleOfNewerType(t *testing.T) {
	m := popef.Model{Metadata: popef.Metadata{
		Anchors:     []popef.Anchor{{Name: "x", Type: 9, Programs: []uint32{5}}},
		ProgramFlow: popef.ProgramFlow{Main: []uint32{5}},
	}}
	require.Equal(t, []contract.Role{contract.Unused}, contract.Roles(&m))
}

func TestRoleNames(t *testing.T) {
	require.Equal(t, "run input", contract.RunInput.String())
	require.Equal(t, "seed", contract.Seed.String())
	require.Equal(t, "role(99)", contract.Role(99).String())
}
