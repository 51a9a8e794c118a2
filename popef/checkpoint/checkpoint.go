// Package checkpoint reads and writes checkpoints: all that a training model has learnt and needs to go on as if it had
// never stopped. That is its weights, the states of its optimizer, the values of the optimizer, seed and state of random numbers.
//
// A checkpoint is a PopEF file without a model. It has an opaque blob, [Blob], that says what the file holds, and a
// tensor blob for each tensor, in the same order. The blob's payload is a line of 64 hexadecimal digits, and JSON behind it:
//
//	9f86d081…
//	{"version":1,"contract":"1a2b3c4d…","steps":120,"tensors":[{"name":"w","role":"weight","type":"F32","shape":[64,10]}, …]}
//
// The digits are the SHA-256 of the JSON followed by the data of all tensors. A reader believes nothing of a file before it
// has found all tensors and compared the digest.
//
// [Write] leaves the whole file or the one that was there before, and refuses weights that are not finite
// ([ErrNotFinite]). [Checkpoint.For] says which tensors a model takes, or how the two differ.
package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// Blob is the name of the opaque blob that makes a PopEF file a checkpoint.
const Blob = "popefgen.checkpoint"

// What can be wrong with a checkpoint, for errors.Is.
var (
	// ErrCheckpoint marks every error of this package.
	ErrCheckpoint = errors.New("not a checkpoint that can be used")
	// ErrTruncated: the file ends before its last tensor does. It was cut off, or copied in part: [Write] leaves no such file.
	ErrTruncated = errors.New("the checkpoint is cut short")
	// ErrDigest: the file is not as it was written.
	ErrDigest = errors.New("the checkpoint's digest is wrong")
	// ErrContract: the checkpoint was made by another model.
	ErrContract = errors.New("checkpoint of another contract")
	// ErrMissing: the model has a weight that the checkpoint does not have.
	ErrMissing = errors.New("missing weight")
	// ErrNotFinite: an element of a weight or a state is infinite or no number.
	ErrNotFinite = errors.New("not finite")
)

// Bounds on what a file may claim.
const (
	version      = 1
	maxHeader    = 64 << 20
	maxListed    = 8 // differences in an error
	digestDigits = 2 * sha256.Size
)

// Checkpoint is what a training model has learnt.
type Checkpoint struct {
	Contract string // ContractHash of the package that wrote it, 64 hexadecimal digits; it tells people, and decides nothing
	Steps    uint64 // how many steps were made until then, since training began
	Tensors  []Tensor
}

// Tensor is one tensor of a checkpoint.
type Tensor struct {
	Name string // of its anchor; no other tensor is called so
	// Role is what it is to the model: [contract.LoadData] for a weight, [contract.State], [contract.Optimizer],
	// [contract.Seed] or [contract.RandomState].
	Role contract.Role
	Info popef.TensorInfo
	// BFloat16 says that the elements, of type U16, are the bits of bfloat16, which PopEF does not know as a type; the executable does.
	BFloat16 bool
	// Constant says that models of inference which are compiled of the same ONNX file have the weight as a constant, that of a Constant node.
	Constant bool
	Data     []byte // row-major, little-endian
	// Given is the value that the model began with, if it is known; it is not in the file. Where an element of it is not finite,
	// as in masks of attention, that element may be as it was given in Data too.
	Given []byte
}

// roleNames are the roles that tensors have, as files name them.
var roleNames = map[contract.Role]string{
	contract.LoadData: "weight", contract.State: "state", contract.Optimizer: "optimizer", contract.Seed: "seed", contract.RandomState: "random state",
}

// header is the JSON of the blob.
type header struct {
	Version  int      `json:"version"`
	Contract string   `json:"contract"`
	Steps    uint64   `json:"steps"`
	Tensors  []tensor `json:"tensors"`
}

// tensor is a tensor in the header.
type tensor struct {
	Name  string  `json:"name"`
	Role  string  `json:"role"`
	Type  string  `json:"type"`
	Shape []int64 `json:"shape"`

	BFloat16 bool `json:"bfloat16,omitempty"` // the bits of type U16 are those of bfloat16
	Constant bool `json:"constant,omitempty"` // models of inference have it as a constant
}

// Tensor returns the tensor of that name, nil if there is none.
func (c *Checkpoint) Tensor(name string) *Tensor {
	i := slices.IndexFunc(c.Tensors, func(t Tensor) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Tensors[i]
}

// Write writes the checkpoint to the file at path, which appears whole or not at all: until then it is as it was, also
// if the process is killed or the machine stops. It refuses a weight or state that is not finite ([ErrNotFinite]), with its
// name and the first such element.
func (c *Checkpoint) Write(path string) error {
	if err := c.Check(); err != nil {
		return fmt.Errorf("%s: write checkpoint: %w", path, err)
	}
	h, err := json.Marshal(c.header())
	if err != nil {
		return fmt.Errorf("%s: write checkpoint: %w: %w", path, ErrCheckpoint, err)
	}
	return popef.WriteFile(path, func(w *popef.Writer) error { return c.write(w, h) })
}

// header returns what the blob says of c.
func (c *Checkpoint) header() header {
	h := header{Version: version, Contract: c.Contract, Steps: c.Steps, Tensors: []tensor{}}
	for i := range c.Tensors {
		t := &c.Tensors[i]
		h.Tensors = append(h.Tensors, tensor{t.Name, roleNames[t.Role], t.Info.DataType.String(), append([]int64{}, t.Info.Shape...), t.BFloat16, t.Constant})
	}
	return h
}

// digest returns the digits of the header's first line.
func (c *Checkpoint) digest(h []byte) string {
	sum := sha256.New()
	sum.Write(h)
	for i := range c.Tensors {
		sum.Write(c.Tensors[i].Data)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// write writes the blobs. Those whose length is no multiple of 8 come last but for the header, so that as many payloads as possible are
// aligned; readers take tensors by name.
func (c *Checkpoint) write(w *popef.Writer, h []byte) error {
	for _, odd := range []bool{false, true} {
		for i := range c.Tensors {
			t := &c.Tensors[i]
			if (len(t.Data)%8 != 0) != odd {
				continue
			}
			if err := w.WriteTensor(t.Name, t.Info, t.Data); err != nil {
				return err
			}
		}
	}
	b, err := w.CreateOpaque(Blob, "")
	if err != nil {
		return err
	}
	if _, err := b.Write(slices.Concat([]byte(c.digest(h)), []byte("\n"), h)); err != nil {
		return err
	}
	return b.Close()
}

// Check returns what of c can't be written: a name that is empty or there twice, data of another size than type and shape
// ask for, a role that no tensor of a checkpoint has, a value that is not finite.
func (c *Checkpoint) Check() error {
	seen := map[string]bool{}
	for i := range c.Tensors {
		t := &c.Tensors[i]
		size, err := t.Info.SizeInBytes()
		switch {
		case t.Name == "" || seen[t.Name]:
			return fmt.Errorf("%w: tensor %d is called %q: want a name of its own", ErrCheckpoint, i, t.Name)
		case roleNames[t.Role] == "":
			return fmt.Errorf("%w: tensor %q is a %v, which is nothing that a model learns", ErrCheckpoint, t.Name, t.Role)
		case t.BFloat16 && t.Info.DataType != popef.U16:
			return fmt.Errorf("%w: %s is %v, want U16 for the bits of bfloat16", ErrCheckpoint, t.what(), t.Info)
		case err != nil:
			return fmt.Errorf("%w: %s: %w", ErrCheckpoint, t.what(), err)
		case int64(len(t.Data)) != size:
			return fmt.Errorf("%w: %s has %d bytes, and %v needs %d", ErrCheckpoint, t.what(), len(t.Data), t.Info, size)
		}
		seen[t.Name] = true
	}
	return c.Finite()
}

// what is what errors call a tensor, such as `weight "w"`.
func (t *Tensor) what() string { return fmt.Sprintf("%s %q", roleNames[t.Role], t.Name) }

// Read reads the checkpoint at path, all of it, and compares its digest. What it returns does not depend on the file any more.
func Read(path string) (*Checkpoint, error) { return ReadContext(context.Background(), path) }

// ReadContext is [Read] until ctx is done, whose error it then returns.
func ReadContext(ctx context.Context, path string) (*Checkpoint, error) {
	r := popef.NewReader()
	defer r.Close()
	if err := r.AddFileContext(ctx, path); err != nil {
		return nil, refused(path, err)
	}
	return read(ctx, path, r)
}

// ReadBytes is [Read] of a file that is in memory; name is for messages.
func ReadBytes(name string, b []byte) (*Checkpoint, error) {
	r := popef.NewReader()
	defer r.Close()
	if err := r.AddBytes(name, b); err != nil {
		return nil, refused(name, err)
	}
	return read(context.Background(), name, r)
}

// refused is the error of a file that is no PopEF file, or ends too soon.
func refused(name string, err error) error {
	if errors.Is(err, popef.ErrTruncated) {
		return fmt.Errorf("%s: %w: %w: %w; take the one before it", filepath.Base(name), ErrCheckpoint, ErrTruncated, err)
	}
	return fmt.Errorf("%s: %w: %w", filepath.Base(name), ErrCheckpoint, err)
}

// read takes the checkpoint out of the blobs of a file.
func read(ctx context.Context, name string, r *popef.Reader) (*Checkpoint, error) {
	c, err := decode(ctx, r.Blobs())
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", filepath.Base(name), ErrCheckpoint, err)
	}
	return c, nil
}

func decode(ctx context.Context, blobs []*popef.Blob) (*Checkpoint, error) {
	var of *popef.Blob
	data := map[string]*popef.Blob{}
	for _, b := range blobs {
		switch {
		case b.Unfinished:
			return nil, fmt.Errorf("%w: blob %q was not written to its end", ErrTruncated, b.Name)
		case b.Kind == popef.OpaqueBlob && b.Name == Blob:
			of = b
		case b.Kind == popef.TensorBlob:
			data[b.Name] = b
		case b.Kind == popef.MetadataBlob:
			return nil, errors.New("the file has a model: give it as one (rt.WithModelFile)")
		}
	}
	switch {
	case of == nil && len(data) == len(blobs):
		return nil, fmt.Errorf("%w: it has %d tensors, and the blob %q that ends it is not there", ErrTruncated, len(data), Blob)
	case of == nil:
		return nil, fmt.Errorf("the file has no blob %q: it is no checkpoint", Blob)
	case of.PayloadSize > maxHeader:
		return nil, fmt.Errorf("blob %q has %d bytes, want at most %d", Blob, of.PayloadSize, maxHeader)
	}
	payload, err := of.Bytes()
	if err != nil {
		return nil, err
	}
	digest, h, ok := strings.Cut(string(payload), "\n")
	if !ok || len(digest) != digestDigits {
		return nil, fmt.Errorf("blob %q does not begin with a line of %d digits", Blob, digestDigits)
	}
	c, err := parse([]byte(h))
	if err != nil {
		return nil, fmt.Errorf("blob %q: %w", Blob, err)
	}
	return c, c.fill(ctx, data, digest, []byte(h))
}

// parse reads the header.
func parse(h []byte) (*Checkpoint, error) {
	var head header
	if err := json.Unmarshal(h, &head); err != nil {
		return nil, fmt.Errorf("it is not read as JSON: %w", err)
	}
	if head.Version != version {
		return nil, fmt.Errorf("it is of version %d, and this popefgen reads version %d: update it", head.Version, version)
	}
	roles := map[string]contract.Role{}
	for role, name := range roleNames {
		roles[name] = role
	}
	types := map[string]popef.DataType{}
	for t := popef.DataType(0); t.Valid(); t++ {
		types[t.String()] = t
	}
	c := &Checkpoint{Contract: head.Contract, Steps: head.Steps}
	seen := map[string]bool{}
	for _, t := range head.Tensors {
		typ, known := types[t.Type]
		role, ok := roles[t.Role]
		switch {
		case t.Name == "" || seen[t.Name]:
			return nil, fmt.Errorf("tensor %q is there twice, or has no name", t.Name)
		case !ok:
			return nil, fmt.Errorf("tensor %q: role %q is none of this popefgen's", t.Name, t.Role)
		case !known:
			return nil, fmt.Errorf("tensor %q: type %q is none of PopEF's", t.Name, t.Type)
		case t.BFloat16 && typ != popef.U16:
			return nil, fmt.Errorf("tensor %q: bfloat16 has the type %q, want U16", t.Name, t.Type)
		}
		seen[t.Name] = true
		c.Tensors = append(c.Tensors, Tensor{Name: t.Name, Role: role, Info: popef.TensorInfo{DataType: typ, Shape: t.Shape}, BFloat16: t.BFloat16, Constant: t.Constant})
	}
	return c, nil
}

// fill takes the data of the tensors out of blobs, and compares the digest.
func (c *Checkpoint) fill(ctx context.Context, data map[string]*popef.Blob, digest string, h []byte) error {
	total := int64(0)
	for i := range c.Tensors {
		t := &c.Tensors[i]
		b := data[t.Name]
		if b == nil {
			return fmt.Errorf("%w: %s is not there", ErrTruncated, t.what())
		}
		if !b.Info.Equal(t.Info) {
			return fmt.Errorf("%w: %s is %v, and its blob is %v", ErrDigest, t.what(), t.Info, b.Info)
		}
		size, err := t.Info.SizeInBytes()
		if err != nil {
			return fmt.Errorf("%s: %w", t.what(), err)
		}
		if b.PayloadSize != size {
			return fmt.Errorf("%w: %s has %d bytes, and %v needs %d", ErrTruncated, t.what(), b.PayloadSize, t.Info, size)
		}
		total = budget.Add(total, size)
	}
	room := budget.From(ctx).Part(0) // what is read is held no longer than whoever asked likes, so that nothing gives it back
	if err := room.Take(total, "the tensors of a checkpoint"); err != nil {
		return err
	}
	defer room.Release()
	all := make([]byte, 0, total)
	for i := range c.Tensors {
		if err := ctx.Err(); err != nil {
			return err
		}
		payload, err := data[c.Tensors[i].Name].Bytes()
		if err != nil {
			return fmt.Errorf("%s: %w", c.Tensors[i].what(), err)
		}
		all = append(all, payload...)
		c.Tensors[i].Data = all[len(all)-len(payload) : len(all) : len(all)]
	}
	if got := c.digest(h); got != digest {
		return fmt.Errorf("%w: it is %s…, and the file says %.8s…: it was changed since it was written; take the one before it", ErrDigest, got[:8], digest)
	}
	return nil
}

// For returns the tensors that the load programs of a model take, in the order of the model's anchors, once each was compared with what
// the model wants. A model that trains wants all that it would save itself, no more and no less: [ErrContract] lists what differs. Any other
// model wants a weight for each of its own, and leaves the rest, but for constants that were learnt ([ErrContract]): [ErrMissing] lists what is not there. Neither takes what is not finite ([ErrNotFinite]),
// unless the model's own file says so.
func (c *Checkpoint) For(m *popef.Model) ([]Tensor, error) {
	of := contract.Of(m)
	trains := of.Callers().Trains || slices.ContainsFunc(of.Anchors, func(a contract.Anchor) bool { return a.Role == contract.State || a.Role == contract.Optimizer })
	var out []Tensor
	var differ, missing []string
	wanted := map[string]bool{}
	for _, a := range Learnt(of) {
		wanted[a.Name] = true
		t, role := c.Tensor(a.Name), RoleOf(&a)
		switch what := fmt.Sprintf("%s %q", roleNames[role], a.Name); {
		case t == nil && (trains || role == contract.LoadData):
			missing = append(missing, fmt.Sprintf("%s, %v, is not in the checkpoint%s", what, a.Info, nearest.DidYouMean(a.Name, c.names())))
		case t == nil:
		case !t.Info.Equal(a.Info):
			differ = append(differ, fmt.Sprintf("%s is %v in the checkpoint and %v in the model", what, t.Info, a.Info))
		case trains && t.Role != role:
			differ = append(differ, fmt.Sprintf("%q is a %s in the checkpoint and a %s in the model", a.Name, roleNames[t.Role], roleNames[role]))
		default:
			took := *t
			if role == contract.LoadData || role == contract.State {
				took.Given, _ = m.TensorData(a.Name)
			}
			if err := took.Finite(); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrCheckpoint, err)
			}
			out = append(out, took)
		}
	}
	for i := range c.Tensors {
		t := &c.Tensors[i]
		if t.Constant && !trains && !wanted[t.Name] {
			return nil, fmt.Errorf("%w: %w: %s was learnt, and is a constant in models of inference, since it stands in a Constant node of the ONNX model; compile the model that popefgen extract makes with this checkpoint, and open that without it",
				ErrCheckpoint, ErrContract, t.what())
		}
		if trains && !wanted[t.Name] {
			differ = append(differ, fmt.Sprintf("%s, %v, is in the checkpoint and not in the model", t.what(), t.Info))
		}
	}
	switch {
	case len(differ)+len(missing) == 0 && (len(out) > 0 || len(wanted) == 0 && trains):
		return out, nil
	case len(differ)+len(missing) == 0:
		return nil, fmt.Errorf("%w: %w: the model has no weight that could be set: it was compiled with its weights as constants; compile it without --constants", ErrCheckpoint, ErrContract)
	}
	err := fmt.Errorf("%w: %s; %s", ErrContract, listed(slices.Concat(differ, missing)), c.remedy(trains))
	if len(missing) > 0 {
		err = fmt.Errorf("%w: %w", ErrMissing, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrCheckpoint, err)
}

// remedy says what to do about differences.
func (c *Checkpoint) remedy(trains bool) string {
	by := ""
	if len(c.Contract) >= 8 {
		by = " (contract " + c.Contract[:8] + ")"
	}
	if trains {
		return "open it with the package that wrote it" + by + ", or compile the training model again from what popefgen extract gives"
	}
	return "open an inference package of the network that was trained" + by
}

// listed joins differences, of many the first ones.
func listed(all []string) string {
	if n := len(all); n > maxListed {
		all = append(slices.Clone(all[:maxListed]), fmt.Sprintf("and %d more", n-maxListed))
	}
	return strings.Join(all, "; ")
}

// names returns the names of all tensors.
func (c *Checkpoint) names() []string {
	out := make([]string, len(c.Tensors))
	for i := range c.Tensors {
		out[i] = c.Tensors[i].Name
	}
	return out
}

// Learnt returns the anchors of a model whose values a checkpoint holds, in the order of the file: inputs that load programs move and no run does.
func Learnt(c contract.Contract) []contract.Anchor {
	load := map[uint32]bool{}
	for _, p := range c.Flow.Load {
		load[p] = true
	}
	var out []contract.Anchor
	for _, a := range c.Anchors {
		loaded := len(a.Programs) > 0 && !slices.ContainsFunc(a.Programs, func(p uint32) bool { return !load[p] })
		if a.Type == popef.Input && loaded && !a.RemoteBuffer && roleNames[RoleOf(&a)] != "" {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b contract.Anchor) int { return a.Index - b.Index })
	return out
}

// RoleOf returns the role of an anchor in a checkpoint, where a weight is one whether the file or the caller gives its first value.
func RoleOf(a *contract.Anchor) contract.Role {
	if a.Role == contract.LoadInput {
		return contract.LoadData
	}
	return a.Role
}
