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
)

func TestFeature33_EmbeddedTensorData(t *testing.T) {
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

func TestFeature34_FeedData(t *testing.T) {
	ctx := context.Background()
	for _, fetching := range []bool{false, true} {
		for _, wrap := range []bool{false, true} {
			script := affineScript()
			script.fetching = fetching
			var opts []rt.SessionOption
			if wrap {
				opts = append(opts, rt.WrapFeeds())
			}
			s := fedModel(t, script, 3).session(t, opts...)
			require.NoError(t, s.ConnectData(ctx, "h2d_b", floats(0, 0)))
			info, _ := s.Stream("anchor_d2h_y")
			y, err := rt.NewBuffer(info, 2)
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

func TestFeature35_DataUsage(t *testing.T) {
	ctx := context.Background()
	flow := affineMetadata().ProgramFlow
	script := affineScript()
	v := fakeAffine(t, "usage", script)
	open := func(p rt.DataPredicate) *rt.Session {
		s := v.session(t, rt.WithDataPolicy(p))
		require.NoError(t, s.ConnectData(ctx, "h2d_b", floats(0, 0)))
		return s
	}
	require.NoError(t, open(nil).Load(ctx), "the file's data")
	require.NoError(t, open(rt.InMain(flow, rt.UseUserData, rt.UseFileData)).Load(ctx), "w is no anchor of main")
	own := open(rt.InLoad(flow, rt.UseUserData, rt.UseFileData))
	require.ErrorIs(t, own.Load(ctx), rt.ErrUnconnected, "w is the caller's now")
	require.NoError(t, own.ConnectData(ctx, "h2d_w", floats(8, 9)))
	require.NoError(t, own.Load(ctx))
	require.Equal(t, floats(8, 9), script.engine.memory["h2d_w"])
}

func TestFeature36_CallbackPolicies(t *testing.T) {
	ctx := context.Background()
	script := affineScript()
	script.fetching = true
	s, y, _ := fakeAffine(t, "policies", script).ready(t)
	var called []string
	factory := func(a rt.Anchor) ipu.Stream {
		called = append(called, a.Handle)
		return &rt.Callback{OnFetch: func(_ context.Context, buf []byte) error { copy(buf, floats(5, 6)); return nil }}
	}
	policy := rt.ByAnchor([]rt.AnchorPolicy[rt.CallbackPolicy]{
		{Handle: "h2d_x", Policy: rt.BindUser}, {Handle: "h2d_w", Policy: rt.SkipBind},
	}, rt.BindEmpty)
	require.NoError(t, s.HandleInputs(ctx, factory, policy, false))
	require.Equal(t, []string{"h2d_x"}, called)
	require.NoError(t, s.HandleOutputs(ctx, factory, func(rt.Anchor) rt.CallbackPolicy { return rt.BindEmpty }, false))
	clear(y.Bytes())
	require.NoError(t, s.Run(ctx))
	require.Equal(t, floats(5, 6), script.engine.moved["h2d_x"], "the user's callback")
	require.Equal(t, affineData["w"], script.engine.memory["h2d_w"], "left as it was")
	require.Equal(t, make([]byte, 8), script.engine.memory["h2d_b"], "whatever was in memory")
	require.Equal(t, make([]byte, 16), y.Bytes(), "dropped")
	require.ErrorIs(t, s.HandleInputs(ctx, factory, func(rt.Anchor) rt.CallbackPolicy { return 9 }, false), rt.ErrOption)
}

// truth lists what a predicate says of an anchor of no program, a scalar of
// load (0), one of main (1), and one of load and save (0 and 2).
func truth[P rt.Policy](p rt.Predicate[P]) string {
	var out []string
	for _, a := range []rt.Anchor{
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

func TestFeature37_FlowPredicates(t *testing.T) {
	require.Equal(t, "0 1 0 1", truth(rt.InLoad(predicateFlow, rt.UseUserData, rt.UseFileData)))
	require.Equal(t, "0 0 1 0", truth(rt.InMain(predicateFlow, rt.UseUserData, rt.UseFileData)))
	require.Equal(t, "0 0 0 1", truth(rt.InSave(predicateFlow, rt.UseUserData, rt.UseFileData)))
	require.Equal(t, "1 0 1 0", truth(rt.InLoad(predicateFlow, rt.BindUser, rt.BindEmpty)))
	require.Equal(t, "1 1 0 1", truth(rt.InMain(predicateFlow, rt.BindUser, rt.BindEmpty)))
	require.Equal(t, "2 2 2 1", truth(rt.InSave(predicateFlow, rt.BindEmpty, rt.SkipBind)))
}

func TestFeature38_NotAssignedNonScalar(t *testing.T) {
	require.Equal(t, "1 0 0 0", truth(rt.NotAssigned(rt.UseUserData, rt.UseFileData)))
	require.Equal(t, "0 1 1 1", truth(rt.NotAssigned(rt.BindUser, rt.BindEmpty)))
	require.Equal(t, "0 1 0 0", truth(rt.NonScalar(rt.BindUser, rt.BindEmpty)))
}

func TestFeature39_ProgramIndexPredicates(t *testing.T) {
	list := []uint32{1, 2}
	p := rt.InPrograms(list, rt.BindUser, rt.BindEmpty)
	require.Equal(t, "1 1 0 0", truth(p))
	list[0] = 0
	require.Equal(t, "1 1 0 0", truth(p), "the list is copied")
	require.Equal(t, "1 1 1 1", truth(rt.InPrograms(nil, rt.BindUser, rt.BindEmpty)))

	groups := []rt.ProgramsPolicy[rt.CallbackPolicy]{
		{Programs: []uint32{2}, Policy: rt.SkipBind},
		{Programs: []uint32{0, 1}, Policy: rt.BindUser},
	}
	require.Equal(t, "1 0 0 2", truth(rt.ByPrograms(groups, rt.BindEmpty)), "the first group counts")
	slices.Reverse(groups)
	require.Equal(t, "1 0 0 0", truth(rt.ByPrograms(groups, rt.BindEmpty)))
}

func TestFeature40_AnchorPolicies(t *testing.T) {
	p := rt.ByAnchor([]rt.AnchorPolicy[rt.CallbackPolicy]{
		{Handle: "main", Policy: rt.SkipBind}, {Handle: "load", Policy: rt.BindUser}, {Handle: "main", Policy: rt.BindUser},
	}, rt.BindEmpty)
	require.Equal(t, "1 0 2 1", truth(p))
}

func TestFeature41_OrAnd(t *testing.T) {
	yes := func(rt.Anchor) rt.CallbackPolicy { return rt.BindUser }
	no := func(rt.Anchor) rt.CallbackPolicy { return rt.BindEmpty }
	for _, c := range []struct{ a, b, or, and rt.CallbackPolicy }{
		{rt.BindEmpty, rt.BindEmpty, rt.SkipBind, rt.SkipBind},
		{rt.BindEmpty, rt.BindUser, rt.BindUser, rt.SkipBind},
		{rt.BindUser, rt.BindEmpty, rt.BindUser, rt.SkipBind},
		{rt.BindUser, rt.BindUser, rt.BindUser, rt.BindUser},
	} {
		pick := func(p rt.CallbackPolicy) rt.CallbackPredicate {
			if p == rt.BindUser {
				return yes
			}
			return no
		}
		a, b := pick(c.a), pick(c.b)
		require.Equal(t, c.or, rt.OrBind(rt.BindUser, rt.SkipBind, a, b)(rt.Anchor{}))
		require.Equal(t, c.and, rt.AndBind(rt.BindUser, rt.SkipBind, a, b)(rt.Anchor{}))
	}
	both := rt.AndBind(rt.UseUserData, rt.UseFileData,
		rt.InLoad(predicateFlow, rt.UseUserData, rt.UseFileData), rt.InSave(predicateFlow, rt.UseUserData, rt.UseFileData))
	require.Equal(t, "0 0 0 1", truth(both))
}

func TestFeature42_CallbackByHandle(t *testing.T) {
	ctx := context.Background()
	script := affineScript()
	s, y, _ := fakeAffine(t, "handle", script).ready(t)
	calls := 0
	var kept []byte
	require.NoError(t, s.SetCallback(ctx, "h2d_x", func(_ context.Context, buf []byte) error {
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
	require.NoError(t, s.SetCallback(ctx, "h2d_x", func(context.Context, []byte) error { return failing }))
	require.ErrorIs(t, s.Run(ctx), failing, "it replaces the earlier one")
	require.Equal(t, 2, calls)
	require.ErrorIs(t, s.SetCallback(ctx, "x", func(context.Context, []byte) error { return nil }), rt.ErrUnknownStream, "the handle counts, not the name")
}

func TestFeature43_Factories(t *testing.T) {
	ctx := context.Background()
	s, y, _ := fakeAffine(t, "factories", affineScript()).ready(t)
	var asked []string
	require.NoError(t, s.HandleInputs(ctx, func(a rt.Anchor) ipu.Stream {
		asked = append(asked, a.Handle)
		if a.Name != "x" {
			return nil
		}
		return &rt.Callback{OnFetch: func(_ context.Context, buf []byte) error { copy(buf, floats(1, 1)); return nil }}
	}, nil, false))
	require.Equal(t, []string{"h2d_x", "h2d_w", "h2d_b"}, asked, "once for each input")
	require.NoError(t, s.Run(ctx))
	require.Equal(t, floats(12, 23, 12, 23), y.Bytes(), "nil keeps w and b")
	asked = nil
	require.NoError(t, s.HandleOutputs(ctx, func(a rt.Anchor) ipu.Stream { asked = append(asked, a.Handle); return nil }, nil, false))
	require.Equal(t, []string{"anchor_d2h_y", "weight_d2h_w"}, asked)
}

func TestFeature44_SkipConnected(t *testing.T) {
	s := fakeAffine(t, "skip", affineScript()).session(t)
	asked := func(skip bool) (handles []string) {
		require.NoError(t, s.HandleInputs(context.Background(), func(a rt.Anchor) ipu.Stream { handles = append(handles, a.Handle); return nil }, nil, skip))
		return handles
	}
	require.Equal(t, []string{"h2d_x", "h2d_b"}, asked(true), "the file has data for w")
	require.Len(t, asked(false), 3)
	require.NoError(t, s.ConnectData(context.Background(), "h2d_b", floats(0, 0)))
	require.Equal(t, []string{"h2d_x"}, asked(true))
	// What is connected stays so, whatever the policy says.
	require.NoError(t, s.HandleInputs(context.Background(), func(rt.Anchor) ipu.Stream { return nil }, func(rt.Anchor) rt.CallbackPolicy { return rt.BindEmpty }, true))
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
	b, err := rt.NewBuffer(ipu.StreamInfo{Handle: "x", Bytes: 8}, 3)
	require.NoError(t, err)
	copy(b.Bytes(), floats(1, 1, 2, 2, 3, 3))

	script := affineScript()
	s := fedModel(t, script, 4).session(t)
	feed := script.engine.connected["h2d_x"]
	require.Equal(t, "0", drive(t, feed, "F C"), "skip the first")
	require.NoError(t, s.Close())

	in := &rt.Input[[3]X]{}
	rt.Prepare(in, "x", 8, 3)
	in.Bind(&[3]X{{Data: [2]float32{1, 1}}, {Data: [2]float32{2, 2}}, {Data: [2]float32{3, 3}}})
	return map[string]ipu.Stream{"buffer": b, "feed": feed, "input": in}
}

func TestFeature45_FetchAndComplete(t *testing.T) {
	for name, s := range counting(t) {
		require.Equal(t, "1 2 3 end", drive(t, s, "F C F F C C F"), name)
	}
	// Functions are called in the device's order.
	var log []string
	c := &rt.Callback{
		OnFetch:      func(_ context.Context, buf []byte) error { log = append(log, "F"); return nil },
		OnComplete:   func() { log = append(log, "C") },
		OnPrefetch:   func(buf []byte) bool { log = append(log, "P"); return true },
		OnInvalidate: func() { log = append(log, "I") },
	}
	drive(t, c, "F C P I P C")
	require.Equal(t, []string{"F", "C", "P", "I", "P", "C"}, log)
	require.ErrorIs(t, (&rt.Callback{}).Fetch(context.Background(), nil), rt.ErrUnconnected)
	(&rt.Callback{}).Complete()
	(&rt.Callback{}).InvalidatePrefetched()
}

func TestFeature46_Prefetch(t *testing.T) {
	for name, s := range counting(t) {
		require.Equal(t, "1 2 3 none end", drive(t, s, "P P P P F C C C"), name)
	}
	// Nothing is available ahead of time from a plain callback: fetch follows.
	c := &rt.Callback{OnFetch: func(_ context.Context, buf []byte) error { copy(buf, floats(4, 4)); return nil }}
	require.Equal(t, "none 4", drive(t, c, "P F C"))
}

func TestFeature47_InvalidatePrefetched(t *testing.T) {
	for name, s := range counting(t) {
		require.Equal(t, "1 2 3 1 2 2 3 end", drive(t, s, "P P P I F C P I F C P C F"), name)
	}
	for name, s := range counting(t) {
		require.Equal(t, "1 2 1 2 3", drive(t, s, "F P I F C F C F C"), name)
	}
}
