// Package golden turns the readable model descriptions of the golden cases
// into PopEF files. README.md of the folder golden is the reference of the format.
package golden

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/family"
)

// Model is a model.yaml.
type Model struct {
	// File is the base name of the PopEF file. If Variables is set, the data
	// of the anchors goes to a second file of that name.
	File      string `yaml:"file"`
	Variables string `yaml:"variables"`

	Executable Executable `yaml:"executable"`

	Replicas         uint32            `yaml:"replicas"`
	IPUs             uint32            `yaml:"ipus"`
	Inference        bool              `yaml:"inference"`
	DeviceIterations uint32            `yaml:"device_iterations"`
	SeedHandle       string            `yaml:"seed_handle"`
	EngineOptions    []string          `yaml:"engine_options"` // name=value
	Load             []uint32          `yaml:"load"`
	Main             []uint32          `yaml:"main"`
	Save             []uint32          `yaml:"save"`
	Evaluate         []uint32          `yaml:"evaluate"` // programs in no flow that compute as a main program does
	Programs         map[uint32]string `yaml:"programs"`

	Anchors []Anchor `yaml:"anchors"`
	// Opaques are the names of opaque blobs; they hold a few bytes.
	Opaques []string `yaml:"opaques"`
	// Family is the JSON of the blob that says which sizes there are; if empty, there is none.
	Family string `yaml:"family"`
	// Branches is likewise that of the blob that says which models it is made of.
	Branches string `yaml:"branches"`
	// Final are run outputs that the main program copies once, behind its device iterations.
	Final []string `yaml:"final"`
	// Joined are inputs that the executable moves as one.
	Joined []Joined `yaml:"joined"`
}

// Joined describes an input stream with several inputs in each transfer.
type Joined struct {
	Name   string           `yaml:"name"`
	Handle string           `yaml:"handle"`
	Words  int64            `yaml:"words"`  // of 8 bytes, in a transfer
	Fields map[string]int64 `yaml:"fields"` // the byte at which each anchor of the name begins
}

// Executable describes the executable blob.
type Executable struct {
	Name string `yaml:"name"`
	// Compute makes the executable portable: per main program the statements
	// that it runs. Without it the blob looks like a Poplar executable.
	Compute map[int][]string `yaml:"compute"`
}

// Anchor describes one anchor and the data that the file carries for it.
type Anchor struct {
	Name       string   `yaml:"name"`
	Handle     string   `yaml:"handle"`
	Type       string   `yaml:"type"` // F32, S64, ... as popef writes them
	Shape      []int64  `yaml:"shape"`
	Direction  string   `yaml:"dir"` // in, out or unknown
	Programs   []uint32 `yaml:"programs"`
	PerReplica bool     `yaml:"per_replica"`
	Remote     bool     `yaml:"remote"`
	Repeats    uint32   `yaml:"repeats"`
	Data       *Data    `yaml:"data"`
	Feed       uint32   `yaml:"feed"` // tensors in a feed blob of zeros
}

// Data is a tensor's content: the word zeros, or the elements in order.
type Data struct{ Elements []float64 }

// UnmarshalYAML accepts the word zeros or a list of numbers.
func (d *Data) UnmarshalYAML(text []byte) error {
	var word string
	if yaml.Unmarshal(text, &word) == nil && word == "zeros" {
		return nil
	}
	if err := yaml.Unmarshal(text, &d.Elements); err != nil {
		return fmt.Errorf("data: want the word zeros or a list of numbers: %w", err)
	}
	return nil
}

// Read reads a model.yaml; a key that it does not know is an error.
func Read(path string) (*Model, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m := &Model{Replicas: 1, IPUs: 1, DeviceIterations: 1, Inference: true}
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(m); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// Write writes the model's PopEF files to dir and returns their paths.
func (m *Model) Write(dir string) ([]string, error) {
	path := filepath.Join(dir, m.File)
	err := popef.WriteFile(path, func(w *popef.Writer) error {
		meta, err := m.metadata()
		if err != nil {
			return err
		}
		file, plan := *meta, []byte(nil)
		if len(m.Joined) > 0 {
			file, plan = popef.JoinInputs(meta, m.joined(meta))
		}
		if err := w.WriteMetadata(&file); err != nil {
			return err
		}
		if err := m.writeExecutable(w, meta); err != nil {
			return err
		}
		for _, name := range m.Opaques {
			o, err := w.CreateOpaque(name, m.Executable.Name)
			if err != nil {
				return err
			}
			if _, err := io.WriteString(o, "opaque "+name); err != nil {
				return err
			}
			if err := o.Close(); err != nil {
				return err
			}
		}
		for _, b := range [][2]string{{family.BlobName, m.Family}, {family.BranchesBlob, m.Branches}, {popef.JoinedBlob, string(plan)}, {contract.TransfersBlob, m.transfers()}} {
			if b[1] == "" {
				continue
			}
			o, err := w.CreateOpaque(b[0], m.Executable.Name)
			if err != nil {
				return err
			}
			if _, err := io.WriteString(o, b[1]); err != nil {
				return err
			}
			if err := o.Close(); err != nil {
				return err
			}
		}
		if m.Variables == "" {
			return m.writeData(w, meta.Anchors)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.File, err)
	}
	paths := []string{path}
	if m.Variables != "" {
		path := filepath.Join(dir, m.Variables)
		err := popef.WriteFile(path, func(w *popef.Writer) error {
			meta, err := m.metadata()
			if err != nil {
				return err
			}
			return m.writeData(w, meta.Anchors)
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Variables, err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// transfers is the payload of the blob with the numbers of transfers, "" if there is none.
func (m *Model) transfers() string {
	var all []contract.Transfers
	for _, a := range m.Anchors {
		if a.Direction == "out" && slices.Contains(m.Final, a.Name) {
			all = append(all, contract.Transfers{Handle: a.Handle, Count: 1})
		}
	}
	if all == nil {
		return ""
	}
	return string(contract.EncodeTransfers(all))
}

// metadata translates the description.
func (m *Model) metadata() (*popef.Metadata, error) {
	out := &popef.Metadata{
		ReplicationFactor: m.Replicas,
		NumIPUs:           m.IPUs,
		SeedHandle:        m.SeedHandle,
		Executable:        m.Executable.Name,
		NumProcesses:      1,
		IPUVersion:        2,
		IsInference:       m.Inference,
		DeviceIterations:  m.DeviceIterations,
		ProgramFlow:       popef.ProgramFlow{Load: m.Load, Main: m.Main, Save: m.Save},
	}
	for _, o := range m.EngineOptions {
		name, value, ok := strings.Cut(o, "=")
		if !ok {
			return nil, fmt.Errorf("engine option %q: want name=value", o)
		}
		out.EngineOptions = append(out.EngineOptions, popef.Option{Name: name, Value: value})
	}
	for index, name := range m.Programs {
		out.Programs = append(out.Programs, popef.ProgramInfo{Index: index, Name: name})
	}
	slices.SortFunc(out.Programs, func(a, b popef.ProgramInfo) int { return int(a.Index) - int(b.Index) })
	for _, a := range m.Anchors {
		t, err := dataType(a.Type)
		if err != nil {
			return nil, fmt.Errorf("anchor %q: %w", a.Name, err)
		}
		anchor := popef.Anchor{
			Name: a.Name, Handle: a.Handle, Programs: a.Programs,
			Info:       popef.TensorInfo{Shape: a.Shape, DataType: t},
			PerReplica: a.PerReplica, RemoteBuffer: a.Remote, Repeats: a.Repeats,
		}
		switch a.Direction {
		case "in":
			anchor.Type = popef.Input
		case "out":
			anchor.Type = popef.Output
		case "unknown":
			anchor.Type = popef.Unknown
		default:
			return nil, fmt.Errorf("anchor %q: dir is %q, want in, out or unknown", a.Name, a.Direction)
		}
		out.Anchors = append(out.Anchors, anchor)
	}
	return out, nil
}

// writeExecutable writes a portable executable, or bytes that look like a
// Poplar executable: the header of its format around two empty archives.
func (m *Model) writeExecutable(w *popef.Writer, meta *popef.Metadata) error {
	e, err := w.CreateExecutable(m.Executable.Name, false)
	if err != nil {
		return err
	}
	if m.Executable.Compute == nil {
		header := make([]byte, 40)
		copy(header, "GC_EXE_3")
		if _, err := e.Write(header); err != nil {
			return err
		}
		return e.Close()
	}
	exe, err := m.portable(meta)
	if err != nil {
		return fmt.Errorf("portable executable: %w", err)
	}
	if err := encoding.Encode(e, exe); err != nil {
		return err
	}
	return e.Close()
}

// writeData writes the tensor and feed blobs.
func (m *Model) writeData(w *popef.Writer, anchors []popef.Anchor) error {
	for i, a := range m.Anchors {
		info := anchors[i].Info
		size, err := info.SizeInBytes()
		if err != nil {
			return fmt.Errorf("anchor %q: %w", a.Name, err)
		}
		if a.Feed > 0 {
			f, err := w.CreateFeed(a.Name, info, a.Feed)
			if err != nil {
				return err
			}
			for i := range int(a.Feed) {
				if err := f.WriteTensor(i, make([]byte, size)); err != nil {
					return err
				}
			}
			if err := f.Close(); err != nil {
				return err
			}
		}
		if a.Data == nil {
			continue
		}
		data := make([]byte, 0, size)
		for _, v := range a.Data.Elements {
			if data, err = appendElement(data, info.DataType, v); err != nil {
				return fmt.Errorf("anchor %q: %w", a.Name, err)
			}
		}
		if len(a.Data.Elements) == 0 {
			data = data[:size]
		}
		if err := w.WriteTensor(a.Name, info, data); err != nil {
			return err
		}
	}
	return nil
}

// dataType finds a data type by its name.
func dataType(name string) (popef.DataType, error) {
	for t := popef.DataType(0); t.Valid(); t++ {
		if t.String() == name {
			return t, nil
		}
	}
	return 0, fmt.Errorf("unknown data type %q", name)
}

// appendElement appends one element in the file's little-endian layout.
func appendElement(b []byte, t popef.DataType, v float64) ([]byte, error) {
	le := binary.LittleEndian
	switch t {
	case popef.Bool, popef.U8:
		return append(b, uint8(v)), nil
	case popef.S8:
		return append(b, uint8(int8(v))), nil
	case popef.S16:
		return le.AppendUint16(b, uint16(int16(v))), nil
	case popef.U16:
		return le.AppendUint16(b, uint16(v)), nil
	case popef.S32:
		return le.AppendUint32(b, uint32(int32(v))), nil
	case popef.U32:
		return le.AppendUint32(b, uint32(v)), nil
	case popef.S64:
		return le.AppendUint64(b, uint64(int64(v))), nil
	case popef.U64:
		return le.AppendUint64(b, uint64(v)), nil
	case popef.F16:
		return le.AppendUint16(b, uint16(num.Float16From64(v))), nil
	case popef.F32:
		return le.AppendUint32(b, math.Float32bits(float32(v))), nil
	case popef.F64:
		return le.AppendUint64(b, math.Float64bits(v)), nil
	case popef.F8143:
		return append(b, uint8(num.Float8E4M3From64(v))), nil
	case popef.F8152:
		return append(b, uint8(num.Float8E5M2From64(v))), nil
	}
	return nil, errors.New("data of this type can only be zeros")
}
