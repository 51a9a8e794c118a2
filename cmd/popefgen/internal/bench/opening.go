package bench

import (
	"context"
	"time"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// Opening is what it took from a file to the first answer, step by step. Its
// JSON form is described in docs/bench.md.
type Opening struct {
	Compile time.Duration `json:"compile_ns"`       // of an ONNX model, to PopEF; else 0
	Read    time.Duration `json:"read_ns"`          // the file's structure; tensor data stay in the mapped file
	Plan    time.Duration `json:"plan_ns"`          // decode and verify the executable, choose kernels, lay out memory
	Load    time.Duration `json:"load_ns"`          // allocate memory, pack constants
	Weights time.Duration `json:"weights_ns"`       // the load programs: bring weights in and pack them
	First   time.Duration `json:"first_request_ns"` // the first run of the main programs
	Total   time.Duration `json:"total_ns"`         // the sum of these
	// Process is the time from the start of a process to the first answer; 0
	// if it was not measured.
	Process time.Duration `json:"process_start_to_first_answer_ns"`
}

// Memory is what a model needs, in bytes. Its JSON form is described in
// docs/bench.md.
type Memory struct {
	Arena      int64 `json:"arena_bytes"`      // tensors of a run and scratch, at the peak
	Persistent int64 `json:"persistent_bytes"` // tensors that keep their value between runs, row-major
	Packed     int64 `json:"packed_bytes"`     // weights in their kernels' own layout
	Constants  int64 `json:"constant_bytes"`   // constants of the executable, used in place
	Data       int64 `json:"file_data_bytes"`  // data of the model's files, used in place
	Executable int64 `json:"executable_bytes"` // decompressed
	// Resident is the most memory that a process had in use up to the first
	// answer, pages of mapped files included, and ResidentAll that of the
	// process which measured, up to its end; 0 if it is not known.
	Resident    int64 `json:"first_answer_resident_bytes"`
	ResidentAll int64 `json:"resident_bytes"`
}

// Open opens the target and answers one request, and returns how long each
// step took and what memory it needs.
func Open(ctx context.Context, t *Target) (o Opening, mem Memory, err error) {
	begin := time.Now()
	last := begin
	step := func(d *time.Duration) {
		now := time.Now()
		*d = now.Sub(last)
		last = now
	}
	m, err := t.Model(ctx)
	if err != nil {
		return o, mem, err
	}
	defer m.Close()
	step(&o.Read)
	s, err := modelrt.NewSession(ctx, m, t.sessionOptions(modelrt.Deferred())...)
	if err != nil {
		return o, mem, err
	}
	defer s.Close()
	step(&o.Plan)
	for _, in := range t.Inputs {
		if err := connect(s, in.Anchor, in.Requests[0]); err != nil {
			return o, mem, err
		}
	}
	for _, a := range outputs(s.Contract()) {
		if err := connect(s, a, nil); err != nil {
			return o, mem, err
		}
	}
	want := s.Target().Request()
	want.Backend = t.Backend
	device, err := (&ipu.Manager{}).Get(ctx, want)
	if err != nil {
		return o, mem, err
	}
	defer device.Detach() //nolint:errcheck // nothing depends on it
	if err := s.Bind(ctx, device); err != nil {
		return o, mem, err
	}
	step(&o.Load)
	if err := s.Load(ctx); err != nil {
		return o, mem, err
	}
	step(&o.Weights)
	if err := s.Run(ctx); err != nil {
		return o, mem, err
	}
	step(&o.First)
	o.Total = last.Sub(begin)
	return o, memoryOf(s), nil
}

// connect gives a stream of a run memory, filled with data.
func connect(s rt.Session, a modelrt.Anchor, data []byte) error {
	info, _ := s.Stream(a.Handle)
	b, err := modelrt.NewBuffer(info, s.Contract().Transfers(&a))
	if err != nil {
		return err
	}
	copy(b.Bytes(), data)
	return s.Connect(context.Background(), a.Handle, b)
}

// memoryOf returns what is known of a session's memory.
func memoryOf(s rt.Session) Memory {
	stats := s.Stats()
	m := Memory{Data: stats.DataBytes, Executable: stats.ExecutableBytes, Resident: PeakResident()}
	if e, ok := s.Engine().(*cpu.Engine); ok {
		r := e.Plan()
		m.Arena, m.Persistent, m.Packed, m.Constants = r.ArenaBytes, r.PersistentBytes, r.PackedBytes, r.ConstantBytes
	}
	return m
}
