package rt_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/popeftest"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// Feature 33.
func TestEmbeddedTensorData(t *testing.T) {
	for _, fetching := range []bool{false, true} {
		script := affineScript()
		script.fetching = fetching
		s, _, _ := fakeAffine(t, fmt.Sprint(fetching), script).ready(t)
		require.NoError(t, s.Load(context.Background()))
		require.Equal(t, affineData["w"], script.engine.memory["h2d_w"])
	}
}

// fedModel is the test model with a feed of n tensors for x, the i-th of which
// holds i twice, with w = 1 and without b.
func fedModel(t *testing.T, s *script, n int) variant {
	t.Helper()
	meta := affineMetadata()
	var buf popeftest.Buffer
	w := popef.NewWriter(&buf)
	require.NoError(t, w.WriteMetadata(&meta))
	e, err := w.CreateExecutable("affine", false)
	require.NoError(t, err)
	_, err = e.Write(register(t, s))
	require.NoError(t, errors.Join(err, e.Close()))
	f, err := w.CreateFeed("x", tensorInfo(2), uint32(n))
	require.NoError(t, err)
	for i := range n {
		require.NoError(t, f.WriteTensor(i, floats(float32(i), float32(i))))
	}
	require.NoError(t, f.Close())
	require.NoError(t, w.WriteTensor("w", tensorInfo(2), floats(1, 1)))
	require.NoError(t, w.Close())
	return variant{backend: fakeName, model: buf.Bytes()}
}

// Feature 34.
func TestFeedEnds(t *testing.T) {
	ctx := context.Background()
	for _, fetching := range []bool{false, true} {
		for _, wrap := range []bool{false, true} {
			script := affineScript()
			script.fetching = fetching
			var opts []modelrt.SessionOption
			if wrap {
				opts = append(opts, rt.WrapFeeds())
			}
			s := fedModel(t, script, 3).session(t, opts...)
			require.NoError(t, s.ConnectData(ctx, "h2d_b", floats(0, 0)))
			info, _ := s.Stream("anchor_d2h_y")
			y, err := modelrt.NewBuffer(info, 2)
			require.NoError(t, err)
			require.NoError(t, s.Connect(ctx, "anchor_d2h_y", y))
			require.NoError(t, s.Run(ctx))
			require.Equal(t, floats(0, 0, 1, 1), y.Bytes(), "one tensor a transfer")
			err = s.Run(ctx)
			if !wrap {
				require.ErrorIs(t, err, rt.ErrEndOfData, "three tensors, four transfers")
				require.NoError(t, s.Close())
				continue
			}
			require.NoError(t, err)
			require.Equal(t, floats(2, 2, 0, 0), y.Bytes())
			require.NoError(t, s.Close())
		}
	}
}

// Feature 35.
func TestDataUsage(t *testing.T) {
	ctx := context.Background()
	flow := affineMetadata().ProgramFlow
	script := affineScript()
	v := fakeAffine(t, "usage", script)
	open := func(p modelrt.DataPredicate) rt.Session {
		s := v.session(t, rt.WithDataPolicy(p))
		require.NoError(t, s.ConnectData(ctx, "h2d_b", floats(0, 0)))
		return s
	}
	require.NoError(t, open(nil).Load(ctx), "the file's data")
	require.NoError(t, open(modelrt.InMain(flow, rt.UseUserData, rt.UseFileData)).Load(ctx), "w is no anchor of main")
	own := open(modelrt.InLoad(flow, rt.UseUserData, rt.UseFileData))
	require.ErrorIs(t, own.Load(ctx), rt.ErrUnconnected, "w is the caller's now")
	require.NoError(t, own.ConnectData(ctx, "h2d_w", floats(8, 9)))
	require.NoError(t, own.Load(ctx))
	require.Equal(t, floats(8, 9), script.engine.memory["h2d_w"])
}

// Feature 36.
func TestCallbackPolicies(t *testing.T) {
	ctx := context.Background()
	script := affineScript()
	script.fetching = true
	s, y, _ := fakeAffine(t, "policies", script).ready(t)
	var called []string
	factory := func(a modelrt.Anchor) ipu.Stream {
		called = append(called, a.Handle)
		return &modelrt.Callback{OnFetch: func(_ context.Context, buf []byte) error { copy(buf, floats(5, 6)); return nil }}
	}
	policy := modelrt.ByAnchor([]modelrt.AnchorPolicy[modelrt.CallbackPolicy]{
		{Handle: "h2d_x", Policy: modelrt.BindUser}, {Handle: "h2d_w", Policy: modelrt.SkipBind},
	}, modelrt.BindEmpty)
	require.NoError(t, modelrt.HandleInputs(ctx, s, factory, policy, false))
	require.Equal(t, []string{"h2d_x"}, called)
	require.NoError(t, modelrt.HandleOutputs(ctx, s, factory, func(modelrt.Anchor) modelrt.CallbackPolicy { return modelrt.BindEmpty }, false))
	clear(y.Bytes())
	require.NoError(t, s.Run(ctx))
	require.Equal(t, floats(5, 6), script.engine.moved["h2d_x"], "the user's callback")
	require.Equal(t, affineData["w"], script.engine.memory["h2d_w"], "left as it was")
	require.Equal(t, make([]byte, 8), script.engine.memory["h2d_b"], "whatever was in memory")
	require.Equal(t, make([]byte, 16), y.Bytes(), "dropped")
	require.ErrorIs(t, modelrt.HandleInputs(ctx, s, factory, func(modelrt.Anchor) modelrt.CallbackPolicy { return 9 }, false), rt.ErrOption)
}

// truth lists what a predicate says of an anchor of no program, a scalar of
// load (0), one of main (1), and one of load and save (0 and 2).
func truth[P modelrt.Policy](p modelrt.Predicate[P]) string {
	var out []string
	for _, a := range []modelrt.Anchor{
		{Handle: "none", Info: tensorInfo(2)},
		{Handle: "load", Programs: []uint32{0}, Info: tensorInfo()},
		{Handle: "main", Programs: []uint32{1}, Info: tensorInfo(2)},
		{Handle: "both", Programs: []uint32{0, 2}, Info: tensorInfo(2, 2)},
	} {
		out = append(out, fmt.Sprint(p(a)))
	}
	return strings.Join(out, " ")
}

var predicateFlow = popef.ProgramFlow{Load: []uint32{0}, Main: []uint32{1}, Save: []uint32{2, 3}}

// Feature 37.
func TestFlowPredicates(t *testing.T) {
	require.Equal(t, "0 1 0 1", truth(modelrt.InLoad(predicateFlow, rt.UseUserData, rt.UseFileData)))
	require.Equal(t, "0 0 1 0", truth(modelrt.InMain(predicateFlow, rt.UseUserData, rt.UseFileData)))
	require.Equal(t, "0 0 0 1", truth(modelrt.InSave(predicateFlow, rt.UseUserData, rt.UseFileData)))
	require.Equal(t, "1 0 1 0", truth(modelrt.InLoad(predicateFlow, modelrt.BindUser, modelrt.BindEmpty)))
	require.Equal(t, "1 1 0 1", truth(modelrt.InMain(predicateFlow, modelrt.BindUser, modelrt.BindEmpty)))
	require.Equal(t, "2 2 2 1", truth(modelrt.InSave(predicateFlow, modelrt.BindEmpty, modelrt.SkipBind)))
}

// Feature 38.
func TestNotAssignedNonScalar(t *testing.T) {
	require.Equal(t, "1 0 0 0", truth(modelrt.NotAssigned(rt.UseUserData, rt.UseFileData)))
	require.Equal(t, "0 1 1 1", truth(modelrt.NotAssigned(modelrt.BindUser, modelrt.BindEmpty)))
	require.Equal(t, "0 1 0 0", truth(modelrt.NonScalar(modelrt.BindUser, modelrt.BindEmpty)))
}

// Feature 39.
func TestProgramIndexPredicates(t *testing.T) {
	list := []uint32{1, 2}
	p := modelrt.InPrograms(list, modelrt.BindUser, modelrt.BindEmpty)
	require.Equal(t, "1 1 0 0", truth(p))
	list[0] = 0
	require.Equal(t, "1 1 0 0", truth(p), "the list is copied")
	require.Equal(t, "1 1 1 1", truth(modelrt.InPrograms(nil, modelrt.BindUser, modelrt.BindEmpty)))

	groups := []modelrt.ProgramsPolicy[modelrt.CallbackPolicy]{
		{Programs: []uint32{2}, Policy: modelrt.SkipBind},
		{Programs: []uint32{0, 1}, Policy: modelrt.BindUser},
	}
	require.Equal(t, "1 0 0 2", truth(modelrt.ByPrograms(groups, modelrt.BindEmpty)), "the first group counts")
	slices.Reverse(groups)
	require.Equal(t, "1 0 0 0", truth(modelrt.ByPrograms(groups, modelrt.BindEmpty)))
}

// Feature 40.
func TestAnchorPolicies(t *testing.T) {
	p := modelrt.ByAnchor([]modelrt.AnchorPolicy[modelrt.CallbackPolicy]{
		{Handle: "main", Policy: modelrt.SkipBind}, {Handle: "load", Policy: modelrt.BindUser}, {Handle: "main", Policy: modelrt.BindUser},
	}, modelrt.BindEmpty)
	require.Equal(t, "1 0 2 1", truth(p))
}

// Feature 41.
func TestPredicatesOrAnd(t *testing.T) {
	yes := func(modelrt.Anchor) modelrt.CallbackPolicy { return modelrt.BindUser }
	no := func(modelrt.Anchor) modelrt.CallbackPolicy { return modelrt.BindEmpty }
	for _, c := range []struct{ a, b, or, and modelrt.CallbackPolicy }{
		{modelrt.BindEmpty, modelrt.BindEmpty, modelrt.SkipBind, modelrt.SkipBind},
		{modelrt.BindEmpty, modelrt.BindUser, modelrt.BindUser, modelrt.SkipBind},
		{modelrt.BindUser, modelrt.BindEmpty, modelrt.BindUser, modelrt.SkipBind},
		{modelrt.BindUser, modelrt.BindUser, modelrt.BindUser, modelrt.BindUser},
	} {
		pick := func(p modelrt.CallbackPolicy) modelrt.CallbackPredicate {
			if p == modelrt.BindUser {
				return yes
			}
			return no
		}
		a, b := pick(c.a), pick(c.b)
		require.Equal(t, c.or, modelrt.OrBind(modelrt.BindUser, modelrt.SkipBind, a, b)(modelrt.Anchor{}))
		require.Equal(t, c.and, modelrt.AndBind(modelrt.BindUser, modelrt.SkipBind, a, b)(modelrt.Anchor{}))
	}
	both := modelrt.AndBind(rt.UseUserData, rt.UseFileData,
		modelrt.InLoad(predicateFlow, rt.UseUserData, rt.UseFileData), modelrt.InSave(predicateFlow, rt.UseUserData, rt.UseFileData))
	require.Equal(t, "0 0 0 1", truth(both))
}

// Feature 42.
func TestCallbackByHandle(t *testing.T) {
	ctx := context.Background()
	script := affineScript()
	s, y, _ := fakeAffine(t, "handle", script).ready(t)
	calls := 0
	var kept []byte
	require.NoError(t, modelrt.SetCallback(ctx, s, "h2d_x", func(_ context.Context, buf []byte) error {
		calls++
		kept = buf
		copy(buf, floats(float32(calls), 0))
		return nil
	}))
	require.NoError(t, s.Run(ctx))
	require.Equal(t, 2, calls, "once for each transfer")
	require.Equal(t, floats(12, 20, 14, 20), y.Bytes())
	require.Len(t, kept, 8)
	failing := errors.New("no data")
	require.NoError(t, modelrt.SetCallback(ctx, s, "h2d_x", func(context.Context, []byte) error { return failing }))
	require.ErrorIs(t, s.Run(ctx), failing, "it replaces the earlier one")
	require.Equal(t, 2, calls)
	require.ErrorIs(t, modelrt.SetCallback(ctx, s, "x", func(context.Context, []byte) error { return nil }), rt.ErrUnknownStream, "the handle counts, not the name")
}

// Feature 43.
func TestCallbackFactories(t *testing.T) {
	ctx := context.Background()
	s, y, _ := fakeAffine(t, "factories", affineScript()).ready(t)
	var asked []string
	require.NoError(t, modelrt.HandleInputs(ctx, s, func(a modelrt.Anchor) ipu.Stream {
		asked = append(asked, a.Handle)
		if a.Name != "x" {
			return nil
		}
		return &modelrt.Callback{OnFetch: func(_ context.Context, buf []byte) error { copy(buf, floats(1, 1)); return nil }}
	}, nil, false))
	require.Equal(t, []string{"h2d_x", "h2d_w", "h2d_b"}, asked, "once for each input")
	require.NoError(t, s.Run(ctx))
	require.Equal(t, floats(12, 23, 12, 23), y.Bytes(), "nil keeps w and b")
	asked = nil
	require.NoError(t, modelrt.HandleOutputs(ctx, s, func(a modelrt.Anchor) ipu.Stream { asked = append(asked, a.Handle); return nil }, nil, false))
	require.Equal(t, []string{"anchor_d2h_y", "weight_d2h_w"}, asked)
}

// Feature 44.
func TestSkipConnectedAnchors(t *testing.T) {
	s := fakeAffine(t, "skip", affineScript()).session(t)
	asked := func(skip bool) (handles []string) {
		require.NoError(t, modelrt.HandleInputs(context.Background(), s, func(a modelrt.Anchor) ipu.Stream { handles = append(handles, a.Handle); return nil }, nil, skip))
		return handles
	}
	require.Equal(t, []string{"h2d_x", "h2d_b"}, asked(true), "the file has data for w")
	require.Len(t, asked(false), 3)
	require.NoError(t, s.ConnectData(context.Background(), "h2d_b", floats(0, 0)))
	require.Equal(t, []string{"h2d_x"}, asked(true))
	// What is connected stays so, whatever the policy says.
	require.NoError(t, modelrt.HandleInputs(context.Background(), s, func(modelrt.Anchor) ipu.Stream { return nil }, func(modelrt.Anchor) modelrt.CallbackPolicy { return modelrt.BindEmpty }, true))
	require.NoError(t, s.Load(context.Background()))
	require.Empty(t, asked(true))
}

// device side scripts of rows 45 to 47: the first letter of each word is what
// the device calls: Fetch, Prefetch, Complete, Invalidate.
func drive(t *testing.T, s ipu.Stream, calls string) string {
	t.Helper()
	var out []string
	for call := range strings.FieldsSeq(calls) {
		buf := make([]byte, 8)
		switch call {
		case "F":
			if err := s.Fetch(context.Background(), buf); err != nil {
				require.ErrorIs(t, err, rt.ErrEndOfData)
				out = append(out, "end")
				continue
			}
		case "P":
			if !s.Prefetch(buf) {
				out = append(out, "none")
				continue
			}
		case "C":
			s.Complete()
			continue
		case "I":
			s.InvalidatePrefetched()
			continue
		}
		out = append(out, fmt.Sprint(f32s(buf, 0)))
	}
	return strings.Join(out, " ")
}

// counting returns streams that deliver 1, 2 and 3: a buffer, a feed of a file
// and one transfer after the other of a generated runner's memory.
func counting(t *testing.T) map[string]ipu.Stream {
	t.Helper()
	b, err := modelrt.NewBuffer(ipu.StreamInfo{Handle: "x", Bytes: 8}, 3)
	require.NoError(t, err)
	copy(b.Bytes(), floats(1, 1, 2, 2, 3, 3))

	script := affineScript()
	s := fedModel(t, script, 4).session(t)
	feed := script.engine.connected["h2d_x"]
	require.Equal(t, "0", drive(t, feed, "F C"), "skip the first")
	require.NoError(t, s.Close())

	in := &genrt.Input[[3]X]{}
	prepare(in, "x", 8, 3)
	in.Bind(&[3]X{{Data: [2]float32{1, 1}}, {Data: [2]float32{2, 2}}, {Data: [2]float32{3, 3}}})
	return map[string]ipu.Stream{"buffer": b, "feed": feed, "input": in}
}

// Feature 45.
func TestFetchAndComplete(t *testing.T) {
	for name, s := range counting(t) {
		require.Equal(t, "1 2 3 end", drive(t, s, "F C F F C C F"), name)
	}
	// Functions are called in the device's order.
	var log []string
	c := &modelrt.Callback{
		OnFetch:      func(_ context.Context, buf []byte) error { log = append(log, "F"); return nil },
		OnComplete:   func() { log = append(log, "C") },
		OnPrefetch:   func(buf []byte) bool { log = append(log, "P"); return true },
		OnInvalidate: func() { log = append(log, "I") },
	}
	drive(t, c, "F C P I P C")
	require.Equal(t, []string{"F", "C", "P", "I", "P", "C"}, log)
	require.ErrorIs(t, (&modelrt.Callback{}).Fetch(context.Background(), nil), rt.ErrUnconnected)
	(&modelrt.Callback{}).Complete()
	(&modelrt.Callback{}).InvalidatePrefetched()
}

// Feature 46.
func TestPrefetchIsAsked(t *testing.T) {
	for name, s := range counting(t) {
		require.Equal(t, "1 2 3 none end", drive(t, s, "P P P P F C C C"), name)
	}
	// Nothing is available ahead of time from a plain callback: fetch follows.
	c := &modelrt.Callback{OnFetch: func(_ context.Context, buf []byte) error { copy(buf, floats(4, 4)); return nil }}
	require.Equal(t, "none 4", drive(t, c, "P F C"))
}

// Feature 47.
func TestInvalidatePrefetched(t *testing.T) {
	for name, s := range counting(t) {
		require.Equal(t, "1 2 3 1 2 2 3 end", drive(t, s, "P P P I F C P I F C P C F"), name)
	}
	for name, s := range counting(t) {
		require.Equal(t, "1 2 1 2 3", drive(t, s, "F P I F C F C F C"), name)
	}
}
