// Package inspect gathers what there is to say of a model's files, and prints it.
package inspect

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/table"
	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/family"
)

// Inspection is what inspect prints; its JSON form is the command's interface.
type Inspection struct {
	ONNX     *onnxInfo   `json:"onnx,omitempty"` // the file of an ONNX model; the rest is what it compiles to
	Blobs    []blobInfo  `json:"blobs"`
	Models   []modelInfo `json:"models"`
	Warnings []string    `json:"warnings,omitempty"`
}

type blobInfo struct {
	File          string `json:"file"`
	Index         int    `json:"index"`
	Kind          string `json:"kind"`
	Name          string `json:"name,omitempty"`
	Executable    string `json:"executable,omitempty"`
	Version       string `json:"version,omitempty"`
	Offset        int64  `json:"offset"`
	Size          int64  `json:"size"`
	PayloadOffset int64  `json:"payload_offset"`
	PayloadSize   int64  `json:"payload_size"`
	Type          string `json:"type,omitempty"`
	Tensors       uint32 `json:"tensors,omitempty"`
}

type modelInfo struct {
	Executable        string            `json:"executable"`
	Format            string            `json:"format"`
	Contract          string            `json:"contract"`
	ReplicationFactor uint32            `json:"replication_factor"`
	IPUs              uint32            `json:"ipus"`
	Processes         uint32            `json:"processes"`
	IPUVersion        uint32            `json:"ipu_version"`
	POD               bool              `json:"pod"`
	Inference         bool              `json:"inference"`
	DeviceIterations  uint32            `json:"device_iterations"`
	SeedHandle        string            `json:"seed_handle,omitempty"`
	EngineOptions     []popef.Option    `json:"engine_options,omitempty"`
	DeviceOptions     []popef.Option    `json:"device_options,omitempty"`
	Load              []uint32          `json:"load"`
	Main              []uint32          `json:"main"`
	Save              []uint32          `json:"save"`
	Programs          map[uint32]string `json:"programs,omitempty"`
	Anchors           []anchorInfo      `json:"anchors"`
	Joined            []joinedInfo      `json:"joined,omitempty"` // inputs that travel together
	Portable          *portableInfo     `json:"portable,omitempty"`
	Family            *familyInfo       `json:"family,omitempty"`
	Branches          []branchInfo      `json:"branches,omitempty"` // of a fused model
	Rows              *rowsInfo         `json:"rows,omitempty"`     // of a portable executable of one size with a batch
	programs          []popef.ProgramInfo
}

// branchInfo is one of the models that are fused.
type branchInfo struct {
	Name    string `json:"name"`
	Program uint32 `json:"program"`
}

type anchorInfo struct {
	Name         string   `json:"name"`
	Handle       string   `json:"handle"`
	Type         string   `json:"type"`
	DataType     string   `json:"data_type"`
	Shape        []int64  `json:"shape"`
	Bytes        int64    `json:"bytes"`
	Programs     []uint32 `json:"programs"`
	Role         string   `json:"role"`
	HasData      bool     `json:"has_data"`
	PerReplica   bool     `json:"per_replica,omitempty"`
	RemoteBuffer bool     `json:"remote_buffer,omitempty"`
	Repeats      uint32   `json:"repeats,omitempty"`
	Transfers    int      `json:"transfers,omitempty"` // in a run, where it is another number than the device iterations
	joined       string   // where it lies in a transfer that has other inputs too
	other        bool     // it is not printed: of another member of the family
}

type portableInfo struct {
	Operators map[string]int     `json:"operators"`
	Nodes     int                `json:"nodes"`
	Constants int                `json:"constants"`
	Passes    []graph.PassReport `json:"passes"` // that made it, in order
	Memory    struct {
		Arena      int64 `json:"arena_bytes"`
		Persistent int64 `json:"persistent_bytes"`
		Packed     int64 `json:"packed_bytes"`
		Constants  int64 `json:"constant_bytes"`
	} `json:"memory"`
	exe    *graph.Executable
	plan   *cpu.Plan
	hidden map[int]bool // graphs that are not printed; nil for none
}

// New returns an inspection of nothing yet.
func New() *Inspection { return &Inspection{Models: []modelInfo{}, Blobs: []blobInfo{}} }

// Chooser returns the member of a model's family that is to be shown, and whether the user asked for one.
// f is nil for a model of one size.
type Chooser func(m *popef.Model, f *family.Family) (member int, asked bool, err error)

// Add gathers what is to be said of the blobs and models of r, as the CPU engine plans them with options.
func (in *Inspection) Add(ctx context.Context, r *popef.Reader, options []ipu.Option, choose Chooser) error {
	for _, b := range r.Blobs() {
		i := blobInfo{File: b.File, Index: b.Index, Kind: b.Kind.String(), Name: b.Name, Executable: b.Executable, Version: b.Version,
			Offset: b.Offset, Size: b.Size, PayloadOffset: b.PayloadOffset, PayloadSize: b.PayloadSize, Tensors: b.NumTensors}
		if b.Kind == popef.TensorBlob || b.Kind == popef.FeedBlob {
			i.Type = b.Info.String()
		}
		in.Blobs = append(in.Blobs, i)
	}
	models, err := r.Models()
	if err != nil {
		return err
	}
	for _, m := range models {
		i, err := inspectModel(ctx, m, options)
		if err == nil {
			err = i.choose(m, choose)
		}
		if err != nil {
			return err
		}
		in.Models = append(in.Models, i)
	}
	for _, w := range r.Warnings() {
		in.Warnings = append(in.Warnings, w.String())
	}
	return nil
}

func inspectModel(ctx context.Context, m *popef.Model, options []ipu.Option) (modelInfo, error) {
	md := m.Metadata
	c := contract.Of(m)
	if c.Refused != nil {
		return modelInfo{}, c.Refused
	}
	i := modelInfo{Executable: md.Executable, Contract: c.Callers().Hash(), ReplicationFactor: md.ReplicationFactor, IPUs: md.NumIPUs, Processes: md.NumProcesses,
		IPUVersion: md.IPUVersion, POD: md.IsPOD, Inference: md.IsInference, DeviceIterations: md.DeviceIterations, SeedHandle: md.SeedHandle,
		EngineOptions: md.EngineOptions, DeviceOptions: md.DeviceOptions, Load: list(md.ProgramFlow.Load), Main: list(md.ProgramFlow.Main),
		Save: list(md.ProgramFlow.Save), Programs: map[uint32]string{}, Anchors: []anchorInfo{}, programs: md.Programs}
	for _, p := range md.Programs {
		i.Programs[p.Index] = p.Name
	}
	for _, b := range c.Branches {
		i.Branches = append(i.Branches, branchInfo{b.Name, b.Program})
	}
	known := make([]*contract.Anchor, len(md.Anchors))
	for k := range c.Anchors {
		known[c.Anchors[k].Index] = &c.Anchors[k]
	}
	roles := contract.Roles(m)
	for k, a := range md.Anchors {
		size, err := a.Info.SizeInBytes()
		if err != nil {
			return i, fmt.Errorf("anchor %q: %w", a.Name, err)
		}
		_, hasData := m.Data(a.Name)
		i.Anchors = append(i.Anchors, anchorInfo{Name: a.Name, Handle: a.Handle, Type: a.Type.String(), DataType: a.Info.DataType.String(),
			Shape: list(a.Info.Shape), Bytes: size, Programs: list(a.Programs), Role: roles[k].String(), HasData: hasData && a.Type.TakesData(),
			PerReplica: a.PerReplica, RemoteBuffer: a.RemoteBuffer, Repeats: a.Repeats, Transfers: known[k].Transfers})
	}
	i.Joined = joinedOf(m)
	for _, j := range i.Joined {
		for _, f := range j.Fields {
			i.Anchors[f.anchor].joined = fmt.Sprintf("byte %d of %s", f.Offset, j.Handle)
		}
	}
	exe, err := m.ExecutableContext(ctx)
	if err != nil {
		return i, err
	}
	f := ipu.Identify(exe)
	i.Format = f.String()
	if f != ipu.FormatPortable {
		i.Family = familyOfContract(c, nil, nil)
		return i, nil
	}
	e, err := encoding.Decode(exe)
	if err != nil {
		return i, fmt.Errorf("executable %q: %w", md.Executable, err)
	}
	p := &portableInfo{Operators: map[string]int{}, Passes: list(e.Passes), exe: e}
	for _, g := range e.Graphs {
		for _, n := range g.Nodes {
			p.Operators[n.Op.Kind()]++
			p.Nodes++
		}
	}
	for _, t := range e.Tensors {
		if t.Const {
			p.Constants++
		}
	}
	if p.plan, err = cpu.PlanOfContext(ctx, e, 1, options...); err != nil {
		return i, fmt.Errorf("executable %q: %w", md.Executable, err)
	}
	p.Memory.Arena, p.Memory.Persistent = p.plan.ArenaBytes, p.plan.PersistentBytes
	p.Memory.Packed, p.Memory.Constants = p.plan.PackedBytes, p.plan.ConstantBytes
	i.Portable, i.Family = p, familyOfContract(c, e, p.plan)
	if i.Family == nil {
		i.Rows = rowsOf(&md, roles, e)
	}
	return i, nil
}

// list makes an absent list an empty one, for JSON.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// Print writes it for people, with the plan step by step if plan is set.
func (in *Inspection) Print(w io.Writer, plan bool) error {
	if in.ONNX != nil {
		if err := in.ONNX.print(w); err != nil || len(in.Blobs) == 0 {
			return err
		}
		fmt.Fprintln(w, "\nCOMPILED")
	}
	fmt.Fprintln(w, "BLOBS")
	t := table.New("FILE", "NO", "OFFSET", "SIZE", "KIND", "NAME", "WHAT")
	for _, b := range in.Blobs {
		what := b.Type
		switch {
		case b.Tensors > 0:
			what = fmt.Sprintf("%d × %s", b.Tensors, b.Type)
		case b.Executable != "":
			what = "of executable " + strconv.Quote(b.Executable)
		}
		t.Row(b.File, b.Index, fmt.Sprintf("%#x", b.Offset), b.Size, b.Kind, b.Name, what)
	}
	if err := t.Print(w); err != nil {
		return err
	}
	for i := range in.Models {
		fmt.Fprintln(w)
		if err := in.Models[i].print(w, plan); err != nil {
			return err
		}
	}
	return nil
}

func (m *modelInfo) print(w io.Writer, plan bool) error {
	kind := "training"
	if m.Inference {
		kind = "inference"
	}
	fmt.Fprintf(w, "MODEL %s\n", printable.Line(m.Executable))
	fmt.Fprintf(w, "executable         %s, %s\n", m.Format, kind)
	fmt.Fprintf(w, "contract           %s\n", m.Contract)
	fmt.Fprintf(w, "IPUs               %d, version %d, POD %v, replication factor %d, processes %d\n", m.IPUs, m.IPUVersion, m.POD, m.ReplicationFactor, m.Processes)
	fmt.Fprintf(w, "device iterations  %d\n", m.DeviceIterations)
	if len(m.Branches) > 0 {
		words := make([]string, len(m.Branches))
		for i, b := range m.Branches {
			words[i] = fmt.Sprintf("%s (program %d)", b.Name, b.Program)
		}
		fmt.Fprintf(w, "branches           %s\n", strings.Join(words, ", "))
	}
	if m.SeedHandle != "" {
		fmt.Fprintf(w, "seed handle        %s\n", printable.Line(m.SeedHandle))
	}
	for _, o := range []struct {
		name    string
		options []popef.Option
	}{{"engine option     ", m.EngineOptions}, {"device option     ", m.DeviceOptions}} {
		for _, p := range o.options {
			fmt.Fprintf(w, "%s %s=%s\n", o.name, printable.Line(p.Name), printable.Line(p.Value))
		}
	}
	for _, f := range []struct {
		name string
		list []uint32
	}{{"load", m.Load}, {"main", m.Main}, {"save", m.Save}} {
		fmt.Fprintf(w, "%s programs      %s\n", f.name, m.flow(f.list))
	}
	if m.Rows != nil {
		m.Rows.print(w)
	}
	for k := range m.Joined {
		m.Joined[k].print(w)
	}
	fmt.Fprintln(w, "\nANCHORS")
	t := table.New("ROLE", "NAME", "TYPE", "SHAPE", "BYTES", "HANDLE", "PROGRAMS", "NOTES")
	for _, a := range m.Anchors {
		var notes []string
		if a.HasData {
			notes = append(notes, "data in file")
		}
		if a.PerReplica {
			notes = append(notes, "per replica")
		}
		if a.RemoteBuffer {
			notes = append(notes, fmt.Sprintf("remote buffer × %d", max(1, a.Repeats)))
		}
		if a.Transfers > 0 {
			notes = append(notes, fmt.Sprintf("%d × a run", a.Transfers))
		}
		if a.joined != "" {
			notes = append(notes, a.joined)
		}
		if a.other {
			continue
		}
		t.Row(a.Role, a.Name, a.DataType, table.Shape(a.Shape), a.Bytes, a.Handle, fmt.Sprint(a.Programs), strings.Join(notes, ", "))
	}
	if err := t.Print(w); err != nil {
		return err
	}
	if m.Family != nil {
		if err := m.Family.print(w); err != nil {
			return err
		}
	}
	if m.Portable == nil || m.Family != nil && !m.Family.one && !plan {
		return nil
	}
	return m.Portable.print(w, plan)
}

// flow shows program indices with their names.
func (m *modelInfo) flow(programs []uint32) string {
	if len(programs) == 0 {
		return "none"
	}
	var parts []string
	for _, p := range programs {
		s := strconv.FormatUint(uint64(p), 10)
		if k := slices.IndexFunc(m.programs, func(i popef.ProgramInfo) bool { return i.Index == p }); k >= 0 && m.programs[k].Name != "" {
			s += " " + printable.Line(m.programs[k].Name)
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, ", ")
}

func (p *portableInfo) print(w io.Writer, plan bool) error {
	fmt.Fprintln(w, "\nEXECUTABLE")
	if err := p.dump(w); err != nil {
		return err
	}
	if l := p.plan.Layout; l.Tensors > 0 {
		fmt.Fprintf(w, "\nLAYOUT on the CPU engine of this machine: %s\n", l)
	}
	fmt.Fprintf(w, "\nMEMORY on the CPU engine: %s arena at its peak; weights: %s persistent at most, %s packed, %s constants in place\n", humanize.IBytes(uint64(p.Memory.Arena)),
		humanize.IBytes(uint64(p.Memory.Persistent)), humanize.IBytes(uint64(p.Memory.Packed)), humanize.IBytes(uint64(p.Memory.Constants)))
	if plan {
		fmt.Fprintln(w)
		_, err := p.plan.WriteTo(w)
		return err
	}
	t := table.New("PROGRAM", "OFFSET", "BYTES", "STEPS", "TENSOR")
	for _, m := range p.plan.Memory().Tensors {
		t.Row(m.Program, m.Offset, m.Bytes, fmt.Sprintf("%d-%d", m.First, m.Last), m.Name)
	}
	return t.Print(w)
}
