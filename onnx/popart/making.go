package popart

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/train"
	"github.com/popefgen/popefgen/popef"
)

// making is the preparation of a session's model: it logs what happens, draws the stages that were asked for, and leaves a dump.
type making struct {
	logs   logs
	o      *Options
	device *Device
	kind   string   // "inference" or "training"
	dots   []string // stages to draw
	dump   string   // file of the dump; empty if there is none

	model    *onnx.Model
	exe      *graph.Executable // as far as it is
	doing    string            // what is under way, in a word
	began    time.Time         // of what is under way
	err      error             // of drawing
	warnings []string
	file     []byte // the model's, if data of it lies in files beside it
	folder   string // of the model
}

// make begins the preparation of a model.
func newMaking(kind string, o *Options, device *Device) (*making, error) {
	dots, err := dotChecks(o)
	if err != nil {
		return nil, err
	}
	k := &making{logs: newLogs(o.Logger), o: o, device: device, kind: kind, dots: dots, dump: os.Getenv(IRDumpVariable), doing: "read"}
	k.began = time.Now()
	k.logs.log(moduleSession, slog.LevelInfo, "making a session", slog.String("kind", kind), slog.String("backend", device.Info().Backend))
	return k, nil
}

// read notes the model that is to be compiled.
func (k *making) read(m *onnx.Model) {
	k.model = m
	k.logs.log(moduleLower, slog.LevelDebug, "the ONNX model is read", slog.Int("nodes", len(m.Graph.Nodes)), slog.Int("initializers", len(m.Graph.Initializers)), k.took())
	k.doing = "lower"
}

// took returns how long what is under way has taken, and begins what is next.
func (k *making) took() slog.Attr {
	now := time.Now()
	took := now.Sub(k.began)
	k.began = now
	return slog.Duration("took", took)
}

// stages names what train has done, and of which module that is.
var trained = map[train.Stage]struct{ module, next, dot string }{
	train.Lowered:           {moduleLower, "append the loss", stageForward0},
	train.LossAppended:      {moduleAutodiff, "differentiate", stageForward1},
	train.GradientsAppended: {moduleAutodiff, "append the optimizer", stageBackward},
	train.OptimizerAppended: {moduleAutodiff, "optimise", ""},
	train.Optimised:         {modulePass, "plan", stagePrealias},
}

// stage is called with what train has done.
func (k *making) stage(s train.Stage, e *graph.Executable) {
	at := trained[s]
	k.done(at.module, string(s), at.dot, e)
	k.doing = at.next
}

// done logs and draws a stage that has ended.
func (k *making) done(module, what, dot string, e *graph.Executable) {
	k.exe = e
	if k.logs.on(module, slog.LevelInfo) {
		k.logs.log(module, slog.LevelInfo, what, slog.Int("graphs", len(e.Graphs)), slog.Int64("nodes", nodes(e)), slog.Int("tensors", len(e.Tensors)), k.took())
	}
	k.draw(dot, e, nil)
}

// pass is called with what a pass did.
func (k *making) pass(r graph.PassReport) {
	if k.logs.on(modulePass, slog.LevelDebug) {
		k.logs.log(modulePass, slog.LevelDebug, r.String(), k.took())
	}
	if k.kind == "inference" && r.Name == lastSimplifying {
		k.draw(stageForward1, k.exe, nil)
	}
}

// draw writes the DOT file of a stage that was asked for.
func (k *making) draw(stage string, e *graph.Executable, places map[graph.TensorID]string) {
	for _, d := range k.dots {
		if d == stage && k.err == nil {
			k.err = writeDOT(k.o.LogDir, k.kind, stage, e, places)
			return
		}
	}
}

// drawFinal draws the stage FINAL, of which the CPU knows where tensors lie.
func (k *making) drawFinal(ctx context.Context, e *graph.Executable) error {
	for _, d := range k.dots {
		if d != stageFinal {
			continue
		}
		var places map[graph.TensorID]string
		if k.device.Info().Backend == cpu.Name {
			known, _ := k.o.engine(cpu.Name)
			p, err := cpu.PlanOfContext(ctx, e, runtime.GOMAXPROCS(0), known...)
			if err != nil {
				return err
			}
			places = placesOf(e, p, export.MainProgram)
		}
		k.draw(stageFinal, e, places)
		break
	}
	return k.err
}

// finish ends the preparation: err is how it ended, m the model if that is nil. It returns the session's warnings.
func (k *making) finish(ctx context.Context, m *popef.Model, err error) ([]string, error) {
	if err == nil && (k.dump != "" || len(k.dots) > 0) {
		k.exe, err = executableOf(ctx, m)
		if err == nil {
			err = k.drawFinal(ctx, k.exe)
		}
	}
	if err == nil {
		err = k.err
	}
	for _, w := range k.warnings {
		k.logs.log(moduleLower, slog.LevelWarn, w)
	}
	if k.dump != "" {
		if failed := k.writeDump(err); failed != nil { // never in the way
			k.logs.log(moduleSession, slog.LevelError, "the dump can't be written", slog.Any("error", failed))
			k.warnings = append(k.warnings, fmt.Sprintf("%s: %v", IRDumpVariable, failed))
		}
	}
	if err != nil {
		k.logs.log(moduleSession, slog.LevelError, "there is no session", slog.String("doing", k.doing), slog.Any("error", err))
	} else {
		k.logs.log(moduleSession, slog.LevelInfo, "the session is made", slog.Int("warnings", len(k.warnings)))
	}
	return k.warnings, err
}

// executableOf decodes a model's executable.
func executableOf(ctx context.Context, m *popef.Model) (*graph.Executable, error) {
	code, err := m.ExecutableContext(ctx)
	if err != nil {
		return nil, err
	}
	return encoding.Decode(code)
}

func nodes(e *graph.Executable) (n int64) {
	for i := range e.Graphs {
		n += int64(len(e.Graphs[i].Nodes))
	}
	return n
}

// span is where bytes lie, as in "64+4096".
func span(offset, bytes int64) string { return fmt.Sprintf("%d+%d", offset, bytes) }

// planned logs what the engine of a prepared session decided, and writes the memory map that was asked for.
func (s *session) planned(engine ipu.Engine) error {
	e, ok := engine.(*cpu.Engine)
	if !ok {
		s.logs.log(modulePlan, slog.LevelDebug, "the back end does not tell how it computes", slog.String("backend", s.device.Info().Backend))
	} else if s.logs.on(modulePlan, slog.LevelInfo) {
		p := e.Plan()
		for i := range p.Programs {
			g := &p.Programs[i]
			s.logs.log(modulePlan, slog.LevelDebug, "program", slog.Int("index", g.Index), slog.String("name", g.Name), slog.Int("steps", len(g.Steps)), slog.Int64("arena_bytes", g.ArenaBytes))
		}
		s.logs.log(modulePlan, slog.LevelInfo, "planned", slog.Int("threads", p.Threads), slog.Int64("arena_bytes", p.ArenaBytes), slog.Int64("persistent_bytes", p.PersistentBytes),
			slog.Int64("packed_bytes", p.PackedBytes), slog.Int64("constant_bytes", p.ConstantBytes))
	}
	return s.mapMemory(e)
}
