package session

import (
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// described returns what the model's metadata says of the executable's streams and programs, for engines that know
// no more of them than their names.
func (s *Session) described() ([]ipu.StreamInfo, []ipu.ProgramInfo, error) {
	var streams []ipu.StreamInfo
	seen := map[string]bool{}
	for i := range s.contract.Anchors {
		a := &s.contract.Anchors[i]
		if a.Handle == "" || seen[a.Handle] {
			continue
		}
		seen[a.Handle] = true
		size, err := a.Info.SizeInBytes()
		if err != nil {
			return nil, nil, err
		}
		st := ipu.StreamInfo{
			Handle: a.Handle, Bytes: int(size) * int(max(1, a.Repeats)), Type: strings.ToLower(a.Info.DataType.String()), Shape: slices.Clone(a.Info.Shape),
			Programs: s.programsOf(a),
		}
		if a.Role == contract.RemoteBuffer {
			st.Blocks, st.Programs = int(max(1, a.Repeats)), nil
		}
		if a.Type == popef.Output {
			st.Direction = ipu.DeviceToHost
		}
		streams = append(streams, st)
	}
	names := map[int]string{}
	for _, p := range s.model.Metadata.Programs {
		names[int(p.Index)] = p.Name
	}
	for _, p := range slices.Concat(s.load, s.Main, s.save) {
		if _, ok := names[p]; !ok {
			names[p] = ""
		}
	}
	var programs []ipu.ProgramInfo
	for p, name := range names {
		programs = append(programs, ipu.ProgramInfo{Index: p, Name: name})
	}
	slices.SortFunc(programs, func(a, b ipu.ProgramInfo) int { return a.Index - b.Index })
	return streams, programs, nil
}

// programsOf returns the programs that move an anchor: those that are recorded, or else those that its role implies.
func (s *Session) programsOf(a *contract.Anchor) []int {
	if len(a.Programs) > 0 {
		return indices(a.Programs)
	}
	var of []int
	switch a.Role {
	case contract.RunInput, contract.RunOutput:
		of = s.Main
	case contract.SaveOutput:
		of = s.save
	case contract.Unused:
	default:
		of = s.load
	}
	of = slices.Clone(of)
	slices.Sort(of)
	return slices.Compact(of)
}
