package contract

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/popef"
)

// TrainingBlob is the name of the opaque blob, JSON, in which a training model that popefgen compiled says what it learns; its key optimizer
// has the optimizer with all its numbers, as people write it, its key constants the names of weights that models of inference have as constants.
const TrainingBlob = "popefgen.training"

// Notes returns what differs between two models and callers do not see:
// weights with their names, types and shapes, stream handles, programs, the
// executable, options, and the hardware that they were compiled for. Every one
// is [Compatible], and code that was generated for one of the models opens the
// other whatever they are. It fails if a model can't be read.
//
// The package hash by which Poplar recognises executables of another release
// is inside of a Poplar executable and not in PopEF's own data; a change of it
// shows as a change of the executable.
func Notes(old, new *popef.Model) ([]Finding, error) {
	n := &notes{}
	if err := n.executable(old, new); err != nil {
		return nil, err
	}
	a, b := &old.Metadata, &new.Metadata
	const load = "the package loads what the file has"
	n.programs(a, b)
	n.streams(old, new)
	n.values(KindOptions, "engine option", options(a.EngineOptions), options(b.EngineOptions), load, "see that the device is run as intended")
	n.values(KindOptions, "device option", options(a.DeviceOptions), options(b.DeviceOptions), load, "see that the device is run as intended")
	n.values(KindNames, "name of program", programNames(a.Programs), programNames(b.Programs), "programs are run by index", "nothing")
	optimizer := func(m *popef.Model) string {
		if o := OptimizerOf(m); o != "" {
			return quote(o)
		}
		return "not told"
	}
	if x, y := Of(old).Callers(), Of(new).Callers(); otherRule(&x, &y) {
		n.folded = true // Judge tells
	} else {
		n.add(KindOptions, "optimizer", optimizer(old), optimizer(new), "callers see the values of it that can be changed", "see that weights are to be learnt so; a checkpoint goes on with the new one if its states are the same")
	}
	const target = "callers do not name the hardware"
	n.add(KindTarget, "IPUs", fmt.Sprint(a.NumIPUs), fmt.Sprint(b.NumIPUs), target, "see that such a device is there")
	n.add(KindTarget, "IPU version", fmt.Sprint(a.IPUVersion), fmt.Sprint(b.IPUVersion), target, "see that such a device is there")
	n.add(KindTarget, "pod", yesNo(a.IsPOD), yesNo(b.IsPOD), target, "see that such a device is there")
	n.add(KindTarget, "processes", fmt.Sprint(a.NumProcesses), fmt.Sprint(b.NumProcesses), target, "see that such a device is there")
	n.add(KindTarget, "inference", yesNo(a.IsInference), yesNo(b.IsInference), "it describes the model, not its interface", "nothing")
	return n.found, n.weights(old, new)
}

// OptimizerOf returns the optimizer that a training model says it has, "" if it says nothing.
func OptimizerOf(m *popef.Model) string { return aboutOf(m).Optimizer }

// ConstantsOf returns the weights of a training model, by the names of their anchors, which models of inference that are compiled of the same ONNX file have as
// constants: values of its Constant nodes.
func ConstantsOf(m *popef.Model) []string { return aboutOf(m).Constants }

// told is what of a [TrainingBlob] is read here.
type told struct {
	Optimizer string   `json:"optimizer"`
	Constants []string `json:"constants"`
}

// aboutOf reads the [TrainingBlob] of a model; it is empty if there is none that can be read.
func aboutOf(m *popef.Model) told {
	const most = 64 << 20 // bytes
	for _, b := range m.Opaques() {
		if b.Name != TrainingBlob || b.PayloadSize > most {
			continue
		}
		var about told
		if data, err := b.Bytes(); err == nil && json.Unmarshal(data, &about) == nil {
			return about
		}
	}
	return told{}
}

type notes struct {
	found  []Finding
	folded bool // the optimizer is of another rule, which Judge tells with all that goes and comes with it
}

func (n *notes) add(k Kind, what, was, is, why, do string) {
	if was != is {
		n.found = append(n.found, Finding{Kind: k, Verdict: Compatible, Opens: true, What: what, Old: was, New: is, Why: why, Do: do})
	}
}

// values adds the differences between two sets of named values.
func (n *notes) values(k Kind, what string, old, new map[string]string, why, do string) {
	names := slices.Sorted(maps.Keys(old))
	for name := range new {
		if _, both := old[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	value := func(m map[string]string, name string) string {
		if v, ok := m[name]; ok {
			return quote(v)
		}
		return "not set"
	}
	for _, name := range names {
		n.add(k, fmt.Sprintf("%s %s", what, name), value(old, name), value(new, name), why, do)
	}
}

// options returns a list of options by quoted name; of several values of one
// name all count.
func options(list []popef.Option) map[string]string {
	m := map[string]string{}
	for _, o := range list {
		if v, ok := m[quote(o.Name)]; ok {
			o.Value = v + ", " + o.Value
		}
		m[quote(o.Name)] = o.Value
	}
	return m
}

func programNames(list []popef.ProgramInfo) map[string]string {
	m := map[string]string{}
	for _, p := range list {
		m[fmt.Sprint(p.Index)] = p.Name
	}
	return m
}

func (n *notes) executable(old, new *popef.Model) error {
	const why, do = "the contract says nothing of how the model computes; the package hash of Poplar is inside of it", "compare the outputs (popefgen run, popefgen verify)"
	a, err := old.Executable()
	if err != nil {
		return fmt.Errorf("comparing executables: %w", err)
	}
	b, err := new.Executable()
	if err != nil {
		return fmt.Errorf("comparing executables: %w", err)
	}
	if !bytes.Equal(a, b) {
		describe := func(m *popef.Model, p []byte) string {
			return fmt.Sprintf("%q of %d bytes, sha256 %s…", m.Metadata.Executable, len(p), digest(p))
		}
		n.add(KindExecutable, "executable", describe(old, a), describe(new, b), why, do)
		return nil
	}
	n.add(KindExecutable, "name of the executable", quote(old.Metadata.Executable), quote(new.Metadata.Executable), why, "nothing")
	return nil
}

// digest returns the start of the SHA-256 of p, enough to tell two apart.
func digest(p []byte) string {
	sum := sha256.Sum256(p)
	return hex.EncodeToString(sum[:4])
}

// programs compares which programs are run.
func (n *notes) programs(a, b *popef.Metadata) {
	for _, f := range []struct {
		what, runs string
		was, now   []uint32
	}{
		{"load programs", "Open runs them by itself", a.ProgramFlow.Load, b.ProgramFlow.Load},
		{"main programs", "Run and Submit run them by themselves", a.ProgramFlow.Main, b.ProgramFlow.Main},
		{"save programs", "Save runs them by itself", a.ProgramFlow.Save, b.ProgramFlow.Save},
	} {
		n.add(KindPrograms, f.what, fmt.Sprint(f.was), fmt.Sprint(f.now), f.runs+"; callers never name programs", "nothing")
	}
}

// streams compares the stream handles of what callers see, and the seed's.
func (n *notes) streams(old, new *popef.Model) {
	const why, do = "Open finds streams by the names of their anchors", "adapt code that names handles to a session"
	n.add(KindStreams, "seed handle", quote(old.Metadata.SeedHandle), quote(new.Metadata.SeedHandle), "callers do not name it", "nothing")
	a, b := Of(old).Callers().Fields, Of(new).Callers().Fields
	pairs, _ := pair(a, b)
	for i, at := range pairs {
		if at >= 0 && a[i].Handle == "" && b[at].Handle == "" {
			n.add(KindStreams, "stream handle of "+a[i].what(), quote(a[i].Stream), quote(b[at].Stream), why, do)
		}
	}
}

// weightNames compares which anchors there are that callers do not see.
func (n *notes) weightNames(old, new *popef.Model) {
	list := func(m *popef.Model) map[string]string {
		out := map[string]string{}
		for _, a := range Of(m).Published().Hidden {
			if a.Type.TakesData() && !(n.folded && (a.Role == State || a.Role == Optimizer)) {
				out[quote(a.Name)] += fmt.Sprintf(" %v %v", a.Role, a.Info)
			}
		}
		return out
	}
	a, b := list(old), list(new)
	var gone, other, added []string
	for name, info := range a {
		switch now, both := b[name]; {
		case !both:
			gone = append(gone, name)
		case now != info:
			other = append(other, name)
		}
	}
	for name := range b {
		if _, both := a[name]; !both {
			added = append(added, name)
		}
	}
	var parts []string
	for _, p := range []struct {
		what  string
		names []string
	}{{"without", gone}, {"with the new", added}, {"of another type or shape", other}} {
		if len(p.names) > 0 {
			parts = append(parts, p.what+" "+some(p.names))
		}
	}
	if parts != nil {
		n.add(KindWeights, "hidden inputs", fmt.Sprint(len(a)), fmt.Sprintf("%d: %s", len(b), strings.Join(parts, "; ")),
			"callers do not see them; UpdateWeights looks for them by name", "adapt code that names weights to UpdateWeights")
	}
}

// some names at most four of the names, sorted, and counts the others.
func some(names []string) string {
	slices.Sort(names)
	const most = 4
	more := ""
	if len(names) > most {
		names, more = names[:most], fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ") + more
}

// weights compares the data that both models carry for anchors of one name.
func (n *notes) weights(old, new *popef.Model) error {
	n.weightNames(old, new)
	shared := 0
	var differ []string
	seen := map[string]bool{}
	for _, a := range old.Metadata.Anchors {
		x, has := old.Data(a.Name)
		y, both := new.Data(a.Name)
		if !has || !both || seen[a.Name] {
			continue
		}
		seen[a.Name] = true
		shared++
		same, err := sameData(x, y)
		if err != nil {
			return fmt.Errorf("comparing the data of %q: %w", a.Name, err)
		}
		if !same {
			differ = append(differ, quote(a.Name))
		}
	}
	if len(differ) > 0 {
		n.add(KindWeights, "weights", fmt.Sprintf("%d tensors", shared), fmt.Sprintf("other data in %d of them: %s", len(differ), some(differ)),
			"data in the file is not part of the contract", "compare the outputs (popefgen run, popefgen verify)")
	}
	return nil
}

// sameData compares what two blobs hold, a piece at a time: models are large.
func sameData(a, b *popef.Blob) (bool, error) {
	if a.Kind != b.Kind || a.NumTensors != b.NumTensors {
		return false, nil
	}
	x, y := a.Open(), b.Open()
	if x.Size() != y.Size() {
		return false, nil
	}
	p, q := make([]byte, min(x.Size(), 1<<18)), make([]byte, min(x.Size(), 1<<18))
	for left := x.Size(); left > 0; {
		n := min(left, int64(len(p)))
		if _, err := io.ReadFull(x, p[:n]); err != nil {
			return false, err
		}
		if _, err := io.ReadFull(y, q[:n]); err != nil {
			return false, err
		}
		if !bytes.Equal(p[:n], q[:n]) {
			return false, nil
		}
		left -= n
	}
	return true, nil
}
