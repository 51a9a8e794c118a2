package popxl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// Session runs the model of an [Ir] in this process, as PopXL's Session does: on a device of a registered back end, such as the CPU of
//
//	import _ "github.com/popefgen/popefgen/ipu/cpu"
//
// Between attaching to the device and detaching from it variables live there; outside of that, and as long as no run has changed them,
// the host's copy is what counts. Any number of goroutines may call a session; calls wait for each other.
type Session struct {
	ir    *Ir
	kind  Kind // 0 if nobody said
	model *popef.Model
	s     rt.Session

	inputs, outputs []port          // the host's sides of the streams, in the Ir's order
	loads, stores   []int64         // how many tensors a run moves over each of them
	evaluated       map[string]bool // outputs that Evaluate computes

	copies  []*Session   // of a model of several replicas, each with an engine; this session's mu guards them
	crew    *crew        // of those that exchange tensors
	devices []ipu.Device // that the session acquired

	printer  io.Writer // of what Print was asked for
	printing bool      // PrintTo has been called

	mu       sync.Mutex
	attached bool
	loaded   bool           // the load programs have run since it was attached
	stale    bool           // a run has changed variables since the host's copies were made
	host     []hostCopy     // of the variables first, in the Ir's order
	numbered map[string]int // places in host of the optimizer's numbers, by name
}

// hostCopy is the host's copy of a variable, or of another tensor that the load programs set.
type hostCopy struct {
	name  string
	data  []byte          // is never written: the engine may use it in place
	saved *modelrt.Buffer // what the save program writes; nil if no run changes variables
}

// ErrDetached marks errors of calls that need a session that is attached to its device.
var ErrDetached = errors.New("the session is not attached to its device: call Attach first, or In")

// Close detaches the session without copying variables to the host, and releases everything. It may be called any number of times.
func (s *Session) Close() error {
	var errs []error
	for _, c := range slices.Concat(s.copies, []*Session{s}) {
		if c.s != nil {
			errs = append(errs, c.s.Close())
		}
	}
	s.mu.Lock()
	s.attached = false
	if s.crew != nil {
		s.crew.close()
		s.crew = nil
	}
	s.mu.Unlock()
	for _, d := range s.devices {
		errs = append(errs, d.Detach())
	}
	return errors.Join(append(errs, s.model.Close())...)
}

// Attached reports whether the session is attached to its device.
func (s *Session) Attached() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attached
}

// Scope is the time during which a session is attached, PopXL's "with session:".
type Scope struct {
	s    *Session
	ctx  context.Context
	mine bool // this scope attached the session
	keep bool
}

// AttachOption is an option of [Session.Attach] and [Session.In].
type AttachOption func(*Scope)

// KeepHostWeights leaves the host's copies of variables as they are when the scope ends: PopXL's weights_to_host_on_exit=False. What runs changed is lost.
func KeepHostWeights() AttachOption { return func(s *Scope) { s.keep = true } }

// Attach attaches the session to its device, unless it is attached, and copies variables to it. Scopes nest: the one that
// attached the session detaches it when it is closed. ctx bounds both.
func (s *Session) Attach(ctx context.Context, opts ...AttachOption) (*Scope, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	scope := &Scope{s: s, ctx: ctx, mine: !s.attached}
	for _, o := range opts {
		o(scope)
	}
	if s.attached {
		return scope, nil
	}
	if err := s.reload(ctx); err != nil {
		return nil, err
	}
	s.attached = true
	if err := s.upload(ctx); err != nil {
		return nil, errors.Join(err, s.detach(ctx))
	}
	return scope, nil
}

// Close ends the scope: if it attached the session it copies variables to the host, unless [KeepHostWeights] says otherwise, and detaches. Closing it again does nothing.
func (c *Scope) Close() error {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.mine || !s.attached {
		return nil
	}
	c.mine = false
	var err error
	if !c.keep {
		err = s.download(c.ctx)
	}
	return errors.Join(err, s.detach(c.ctx))
}

func (s *Session) detach(ctx context.Context) error {
	s.attached, s.loaded, s.stale = false, false, false
	if s.copies != nil {
		return s.each(func(c *Session) error { return c.detach(ctx) })
	}
	return s.s.Unload(ctx)
}

// In calls do within a scope of its own. Where do returns an error or panics, variables are not copied to the host.
func (s *Session) In(ctx context.Context, do func() error, opts ...AttachOption) (err error) {
	scope, err := s.Attach(ctx, opts...)
	if err != nil {
		return err
	}
	fine := false
	defer func() {
		scope.keep = scope.keep || !fine
		err = errors.Join(err, scope.Close())
	}()
	err = do()
	fine = err == nil
	return err
}

// Run runs the model once. It takes [Input.Feed] of every input and [Output.Into] of those outputs that are wanted, whose
// slices it has written when it returns: all of these are used in place, and must not change meanwhile. It is an error, and nothing runs, if inputs are missing or given twice, a number of elements is wrong, or
// the session is not attached ([ErrDetached]). It allocates nothing. Of a model of several replicas ([Ir.SetReplicas]) it runs all.
func (s *Session) Run(ctx context.Context, bindings ...Binding) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin("run", bindings); err != nil {
		return err
	}
	err := s.compute(ctx, bindings, false)
	if err == nil {
		s.print(false)
	}
	return err
}

// Evaluate computes what comes before the first gradient and the first change of a variable, and so changes none: how well a network does with data that it does not learn from. It
// takes what [Session.Run] does; an output of what comes later is an error. Of a model without either it is Run.
func (s *Session) Evaluate(ctx context.Context, bindings ...Binding) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin("evaluate", bindings); err != nil {
		return err
	}
	for i := range bindings {
		if b := &bindings[i]; s.ir.stage == update && b.kind == takeOutput && !s.evaluated[b.name] {
			return fmt.Errorf("%s: evaluate: output %q depends on a gradient or a variable that has changed: Run computes it", s.ir.name, b.name)
		}
	}
	err := s.compute(ctx, bindings, true)
	if err == nil {
		s.print(true)
	}
	return err
}

// begin checks what is given to a run.
func (s *Session) begin(doing string, bindings []Binding) error {
	if !s.attached {
		return fmt.Errorf("%s: %s: %w", s.ir.name, doing, ErrDetached)
	}
	if err := s.checkRun(bindings); err != nil {
		return fmt.Errorf("%s: %s: %w", s.ir.name, doing, err)
	}
	return nil
}

// checkRun refuses bindings that do not fit, and tells which inputs are missing.
func (s *Session) checkRun(bindings []Binding) error {
	fed := 0
	for i := range bindings {
		b := &bindings[i]
		want, ports, moves := feedInput, s.inputs, s.loads
		if b.kind == takeOutput {
			want, ports, moves = takeOutput, s.outputs, s.stores
		}
		bytes, count := 0, int64(1)
		if b.ir == s.ir && b.kind == want {
			bytes, count = ports[b.at].bytes, moves[b.at]
		}
		if err := b.check(s.ir, want, bytes, count, s.replicas()); err != nil {
			return err
		}
		for j := range i {
			if bindings[j].kind == b.kind && bindings[j].at == b.at {
				return fmt.Errorf("%s %q is given twice", bindingKinds[b.kind], b.name)
			}
			if err := checkMemory(&bindings[j], b); err != nil {
				return err
			}
		}
		if b.kind == feedInput {
			fed++
		}
	}
	if fed == len(s.ir.inputs) {
		return nil
	}
	var missing []string
	for i, p := range s.ir.inputs {
		if !slices.ContainsFunc(bindings, func(b Binding) bool { return b.kind == feedInput && b.at == i }) {
			missing = append(missing, fmt.Sprintf("%q", p.Name))
		}
	}
	return fmt.Errorf("nothing is fed to input %s: give Input.Feed of each", strings.Join(missing, ", "))
}

// Variables writes the values of variables to the slices of [Variable.Into]. If the session is attached and a run has changed variables since the
// host's copies were made, these are made anew first, all of them in one go; otherwise nothing is moved. Of several replicas a slice gets the value of the first, or, if it is
// as many times as long, that of each.
func (s *Session) Variables(ctx context.Context, bindings ...Binding) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkVariables(bindings, getVariable); err != nil {
		return fmt.Errorf("%s: read variables: %w", s.ir.name, err)
	}
	if len(bindings) == 0 {
		return nil
	}
	if err := s.download(ctx); err != nil {
		return err
	}
	for i := range bindings {
		s.fetch(&bindings[i])
	}
	return nil
}

// SetVariables gives variables the values of [Variable.Set], which are copied: those of the host now, and those of the device, if the session is attached, with
// one copy at the end, before which values that a run has changed come to the host. If one of them is wrong, nothing changes. Of several replicas each gets the value, or, of a slice that
// is as many times as long, one of its own.
func (s *Session) SetVariables(ctx context.Context, bindings ...Binding) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkVariables(bindings, setVariable); err != nil {
		return fmt.Errorf("%s: set variables: %w", s.ir.name, err)
	}
	if len(bindings) == 0 {
		return nil
	}
	if err := s.download(ctx); err != nil {
		return err
	}
	for i := range bindings {
		s.change(&bindings[i])
	}
	if !s.attached {
		return nil
	}
	return s.upload(ctx)
}

// SetOptimizer gives the optimizer other numbers, from the next run on: those that it has as [optim.Changeable]. It is an error if the Ir has no optimizer or several, or if
// the rule, a constant or what is changeable is another one ([optim.Replaces]).
func (s *Session) SetOptimizer(ctx context.Context, o optim.Optimizer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	numbers, err := s.numbers(o)
	if err != nil {
		return fmt.Errorf("%s: set optimizer: %w", s.ir.name, err)
	}
	if err := s.download(ctx); err != nil {
		return err
	}
	for _, n := range numbers {
		value := fill(graph.TensorType{DType: graph.F32}, n.Value)
		s.host[s.numbered[n.Name]].data = value
		for _, c := range s.copies {
			c.host[c.numbered[n.Name]].data = value
		}
	}
	if !s.attached {
		return nil
	}
	return s.upload(ctx)
}

// numbers returns what an optimizer in place of that of the Ir has as numbers.
func (s *Session) numbers(o optim.Optimizer) ([]optim.Scalar, error) {
	if n := len(s.ir.optimizers); n != 1 || o == nil {
		return nil, fmt.Errorf("the Ir has %d optimizers, want one, and one to take its place", n)
	}
	old := s.ir.optimizers[0]
	if err := optim.Replaces(o, old.Optimizer, old.names); err != nil {
		return nil, err
	}
	return optim.Scalars(o, old.names, 1)
}

func (s *Session) checkVariables(bindings []Binding, want bindingKind) error {
	for i := range bindings {
		b, bytes := &bindings[i], 0
		if b.ir == s.ir && b.kind == want {
			bytes = len(s.host[b.at].data)
		}
		replicas := 1
		if len(b.data) == bytes*s.replicas() {
			replicas = s.replicas()
		}
		if err := b.check(s.ir, want, bytes, 1, replicas); err != nil {
			return err
		}
	}
	return nil
}

// WeightsToHost copies variables to the host, as [Session.Variables] does where it has to: it does nothing if no run has changed them since.
func (s *Session) WeightsToHost(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.attached {
		return fmt.Errorf("%s: weights to host: %w", s.ir.name, ErrDetached)
	}
	return s.download(ctx)
}

// WeightsFromHost copies the host's copies of variables to the device: what runs have changed since these were made is lost.
func (s *Session) WeightsFromHost(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.attached {
		return fmt.Errorf("%s: weights from host: %w", s.ir.name, ErrDetached)
	}
	s.forget()
	return s.upload(ctx)
}

// download makes the host's copies anew if the device has others.
func (s *Session) download(ctx context.Context) error {
	if s.copies != nil {
		return s.each(func(c *Session) error { return c.download(ctx) })
	}
	if !s.attached || !s.stale {
		return nil
	}
	if err := s.s.Save(ctx); err != nil {
		return err
	}
	for i := range s.host {
		if c := &s.host[i]; c.saved != nil {
			c.data = slices.Clone(c.saved.Bytes())
		}
	}
	s.stale = false
	return nil
}

// upload gives the device the host's copies.
func (s *Session) upload(ctx context.Context) error {
	if s.copies != nil {
		return s.each(func(c *Session) error { return c.upload(ctx) })
	}
	weights := make([]rt.Weight, len(s.host))
	for i := range s.host {
		weights[i] = rt.Weight{Anchor: s.host[i].name, Data: s.host[i].data}
	}
	if err := s.s.UpdateWeights(ctx, weights...); err != nil { // loads, if there is something to load anew
		return err
	}
	if !s.loaded {
		if err := s.s.Load(ctx); err != nil {
			return err
		}
	}
	s.loaded = true
	return nil
}
