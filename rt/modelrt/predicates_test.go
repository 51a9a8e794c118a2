package modelrt_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// TestPredicatesKeepTheirs changes what predicates were made of.
func TestPredicatesKeepTheirs(t *testing.T) {
	a := modelrt.Anchor{Name: "a", Handle: "h", Programs: []uint32{1}, Info: popef.TensorInfo{Shape: []int64{1}}}
	programs := []uint32{1}
	inPrograms := modelrt.InPrograms(programs, rt.UseUserData, rt.UseFileData)
	programs[0] = 2
	require.Equal(t, rt.UseUserData, inPrograms(a))
	groups := []modelrt.ProgramsPolicy[rt.DataPolicy]{{Programs: []uint32{1}, Policy: rt.UseUserData}}
	byPrograms := modelrt.ByPrograms(groups, rt.UseFileData)
	groups[0].Programs = []uint32{2}
	require.Equal(t, rt.UseUserData, byPrograms(a))
	anchors := []modelrt.AnchorPolicy[rt.DataPolicy]{{Handle: "h", Policy: rt.UseUserData}}
	byAnchor := modelrt.ByAnchor(anchors, rt.UseFileData)
	anchors[0].Handle = "other"
	require.Equal(t, rt.UseUserData, byAnchor(a))
}
