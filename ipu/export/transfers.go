package export

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// transfers returns the payload of the model's [contract.TransfersBlob]: of the anchors that a main program
// moves another number of times than there are device iterations. It is nil if there are none.
func (m *Model) transfers() ([]byte, error) {
	main := m.Metadata.ProgramFlow.Main
	if len(main) != 1 { // families and fused models make one of each
		return nil, nil
	}
	var counts map[graph.StreamID]int64
	for i := range m.Executable.Programs {
		if p := &m.Executable.Programs[i]; p.Index == int(main[0]) {
			counts = graph.Transfers(p.Steps)
		}
	}
	of := map[string]int64{}
	for id, n := range counts {
		of[m.Executable.Streams[id].Handle] = n
	}
	carried := map[string]bool{} // what the runtime feeds has no transfers that callers see
	for i := range m.Data {
		carried[m.Data[i].Name] = true
	}
	var all []contract.Transfers
	for i := range m.Metadata.Anchors {
		a := &m.Metadata.Anchors[i]
		n, ok := of[a.Handle]
		switch {
		case !ok || a.Type == popef.Input && carried[a.Name] || !slices.Contains(a.Programs, main[0]) || n == max(1, int64(m.Metadata.DeviceIterations)):
			continue
		case n > maxIterations:
			return nil, refuse("anchor %q: the main program moves it %d times, want at most %d", a.Name, n, int64(maxIterations))
		}
		all = append(all, contract.Transfers{Handle: a.Handle, Count: n})
	}
	if all == nil {
		return nil, nil
	}
	return contract.EncodeTransfers(all), nil
}
