package rt_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// sessionModel is what a session should be like, in a few words.
type sessionModel struct {
	session   rt.Session
	y, w      *modelrt.Buffer
	saving    bool // SaveOnUnbind
	autoReset bool

	device  int // remembered; -1 for none
	bound   bool
	placed  bool // it has the device and is loaded there
	loaded  bool // the load programs have run
	stopped bool
	failed  ipu.ErrorKind // of its device since it was loaded; 0 for none
	weight  float32       // that is connected
	onIPU   float32       // that is on the device
	saved   float32       // that arrived last
}

// world is some sessions on some devices.
type world struct {
	sys      *testSystem
	devices  []*iputest.Device
	broken   []bool // a device must be repaired
	holder   []int  // the session that a device works for; -1 for none
	sessions []*sessionModel
	next     ipu.ErrorKind // of the next program that runs; 0 for none
	forgive  func()        // takes that back
}

// runProgram has a session run a program.
func (w *world) runProgram(m *sessionModel) error {
	if w.next == 0 {
		return nil
	}
	m.failed, m.loaded = w.next, false
	if w.next == ipu.KindUnknown {
		w.broken[m.device] = true
	}
	w.next = 0
	return rt.ErrDevice
}

// loads has a session run its load programs.
func (w *world) loads(m *sessionModel) error {
	m.loaded = false
	if m.stopped {
		return rt.ErrStopped
	}
	if err := w.runProgram(m); err != nil {
		return err
	}
	m.loaded, m.onIPU = true, m.weight
	return nil
}

// saves has a session run its save programs.
func (w *world) saves(m *sessionModel) error {
	err := w.runProgram(m)
	if err == nil {
		m.saved = m.onIPU
	}
	return err
}

// savesIfAsked is what a session does before it leaves its device.
func (w *world) savesIfAsked(m *sessionModel) error {
	if m.saving && m.placed && m.loaded && !m.stopped {
		return w.saves(m)
	}
	return nil
}

// leaves has a session give up its device.
func (w *world) leaves(i int) {
	m := w.sessions[i]
	m.placed, m.loaded = false, false
	if m.device >= 0 && w.holder[m.device] == i {
		w.holder[m.device] = -1
	}
}

// takes has a session take its device from its holder, and load.
func (w *world) takes(i int) error {
	m := w.sessions[i]
	if h := w.holder[m.device]; h >= 0 && h != i {
		if err := w.savesIfAsked(w.sessions[h]); err != nil {
			return err
		}
		w.leaves(h)
	}
	w.holder[m.device] = i
	if w.broken[m.device] {
		return ipu.ErrUnknown
	}
	m.placed, m.failed = true, 0
	return nil
}

// places binds a session to its device, and returns which error that has.
func (w *world) places(i int) error {
	m := w.sessions[i]
	m.bound, m.placed, m.loaded = false, false, false
	if err := w.takes(i); err != nil {
		w.leaves(i)
		return err
	}
	m.stopped, m.bound = false, true
	return nil
}

// activates makes a session the one that its device works for.
func (w *world) activates(i int) error {
	m := w.sessions[i]
	switch {
	case !m.bound:
		return rt.ErrUnbound
	case m.stopped:
		return rt.ErrStopped
	case m.failed != 0 && !(m.autoReset && m.failed == ipu.KindApplication):
		return rt.ErrDevice
	case m.failed != 0:
		m.placed = false
	}
	if m.placed {
		return nil
	}
	return w.takes(i)
}

// runs is what a request does.
func (w *world) runs(i int) error {
	m := w.sessions[i]
	if err := w.activates(i); err != nil {
		return err
	}
	if !m.loaded {
		if err := w.loads(m); err != nil {
			return err
		}
	}
	return w.runProgram(m)
}

// TestSessionModel does anything in any order with sessions that share devices
// which fail, and compares them with the model above.
func TestSessionModel(t *testing.T) {
	_, v := tested(t, 1)
	model := load(t, v.model)
	ctx := context.Background()
	rapid.Check(t, func(t *rapid.T) {
		w := &world{sys: newSystem(iputest.Config{Devices: make([]ipu.DeviceInfo, 2)}), broken: make([]bool, 2), holder: []int{-1, -1}}
		for i := range 2 {
			w.devices = append(w.devices, w.sys.Device(i))
		}
		for i := range 3 {
			m := &sessionModel{device: -1, saving: i != 1, autoReset: i == 2, weight: 2}
			opts := []modelrt.SessionOption{modelrt.Deferred(), rt.WithManager(w.sys.Manager())}
			if m.saving {
				opts = append(opts, rt.SaveOnUnbind())
			}
			if m.autoReset {
				opts = append(opts, rt.AutoReset())
			}
			s, err := modelrt.NewSession(ctx, model, opts...)
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			m.session = s
			connect := func(handle string, transfers int) *modelrt.Buffer {
				info, _ := s.Stream(handle)
				b, err := modelrt.NewBuffer(info, transfers)
				require.NoError(t, errors.Join(err, s.Connect(ctx, handle, b)))
				return b
			}
			require.NoError(t, s.ConnectData(ctx, "h2d_b", floats(0, 0)))
			require.NoError(t, s.ConnectData(ctx, "h2d_w", floats(2, 2)))
			copy(connect("h2d_x", 2).Bytes(), floats(1, 1, 1, 1))
			m.y, m.w = connect("anchor_d2h_y", 2), connect("weight_d2h_w", 1)
			w.sessions = append(w.sessions, m)
		}
		defer func() {
			if w.forgive != nil {
				w.forgive()
			}
		}()
		any := func(t *rapid.T) (int, *sessionModel) {
			i := rapid.IntRange(0, len(w.sessions)-1).Draw(t, "session")
			return i, w.sessions[i]
		}
		same := func(t *rapid.T, err, want error) {
			t.Helper()
			if want == nil && err != nil || want != nil && !errors.Is(err, want) {
				t.Fatalf("got %v, want %v", err, want)
			}
		}
		weight := float32(2)
		t.Repeat(map[string]func(*rapid.T){
			"bind": func(t *rapid.T) {
				i, m := any(t)
				d := rapid.IntRange(0, 1).Draw(t, "device")
				err := m.session.Bind(ctx, w.devices[d])
				if want := w.savesIfAsked(m); want != nil {
					same(t, err, want)
					return
				}
				if m.device != d {
					w.leaves(i)
					m.device = d
				}
				same(t, err, w.places(i))
			},
			"unload": func(t *rapid.T) {
				i, m := any(t)
				err := m.session.Unload(ctx)
				if !m.bound {
					same(t, err, rt.ErrUnbound)
					return
				}
				want := w.savesIfAsked(m)
				same(t, err, want)
				if want == nil {
					w.leaves(i)
					m.bound = false
				}
			},
			"reload": func(t *rapid.T) {
				i, m := any(t)
				err := m.session.Reload(ctx)
				if m.device < 0 {
					same(t, err, rt.ErrUnbound)
					return
				}
				same(t, err, w.places(i))
			},
			"stop": func(t *rapid.T) {
				_, m := any(t)
				err := m.session.Stop()
				switch {
				case !m.bound:
					same(t, err, rt.ErrUnbound)
				case m.stopped:
					same(t, err, rt.ErrStopped)
				default:
					same(t, err, nil)
					m.stopped = true
				}
			},
			"run": func(t *rapid.T) {
				i, m := any(t)
				clear(m.y.Bytes())
				err := m.session.Run(ctx)
				want := w.runs(i)
				same(t, err, want)
				if want == nil {
					require.Equal(t, floats(m.onIPU, m.onIPU, m.onIPU, m.onIPU), m.y.Bytes())
				}
			},
			"load": func(t *rapid.T) {
				i, m := any(t)
				err := m.session.Load(ctx)
				want := w.activates(i)
				if want == nil {
					want = w.loads(m)
				}
				same(t, err, want)
			},
			"save": func(t *rapid.T) {
				_, m := any(t)
				err := m.session.Save(ctx)
				switch {
				case !m.bound:
					same(t, err, rt.ErrUnbound)
				case m.stopped:
					same(t, err, rt.ErrStopped)
				case m.failed != 0:
					same(t, err, rt.ErrDevice)
				case !m.loaded:
					same(t, err, rt.ErrNotLoaded)
				default:
					same(t, err, w.saves(m))
				}
			},
			"weights": func(t *rapid.T) {
				_, m := any(t)
				weight++
				err := m.session.UpdateWeights(ctx, rt.Weight{Anchor: "h2d_w", Data: floats(weight, weight)})
				m.weight = weight
				if m.loaded {
					same(t, err, w.loads(m))
				} else {
					same(t, err, nil)
				}
			},
			"fault": func(t *rapid.T) {
				if w.next != 0 {
					t.Skip("one at a time")
				}
				w.next = rapid.SampledFrom([]ipu.ErrorKind{ipu.KindApplication, ipu.KindUnknown}).Draw(t, "kind")
				w.forgive = w.sys.Inject(iputest.OnRun(), &ipu.Error{Kind: w.next})
			},
			"repair": func(t *rapid.T) {
				d := rapid.IntRange(0, 1).Draw(t, "device")
				w.sys.Repair(d)
				w.broken[d] = false
			},
			"": func(t *rapid.T) {
				for i, m := range w.sessions {
					s := m.session
					if s.Bound() != m.bound || s.Stopped() != m.stopped {
						t.Fatalf("session %d: bound %v, stopped %v, want %v, %v", i, s.Bound(), s.Stopped(), m.bound, m.stopped)
					}
					if got := s.Device(); m.device < 0 != (got == nil) || got != nil && got.Info().ID != m.device {
						t.Fatalf("session %d: device %v, want %d", i, got, m.device)
					}
					if got := f32s(m.w.Bytes(), 0); got != m.saved {
						t.Fatalf("session %d: saved %v, want %v", i, got, m.saved)
					}
				}
				if v := w.sys.Violations(); len(v) > 0 {
					t.Fatal(fmt.Sprint(v))
				}
			},
		})
	})
}
