package verify

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFamilyFiles wants one more member of a public model to take a small part of its file.
func TestFamilyFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("the public models take seconds")
	}
	for _, c := range publicFamilies {
		members := familyMembers(c.dims, c.sizes)
		length := func(n int) int {
			r, _ := executableOf(t, c.model, members[:n]...)
			file, err := r.Bytes()
			require.NoError(t, err)
			return len(file)
		}
		all := length(len(members))
		more := all - length(len(members)-1)
		t.Logf("%s: %d members, %d bytes; the last one %d, %.2f %%", c.model, len(members), all, more, 100*float64(more)/float64(all))
		require.LessOrEqual(t, 20*more, all, c.model)
	}
}
