package modelrt

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLoopLosesNoWork brings work at every moment of a search: either the search
// finds it, or the loop is awake when it is to wait.
func TestLoopLosesNoWork(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		before    int // work comes at the beginning of this look, the first being 1; 0: never
		after     int // work comes when this look has seen nothing
		fails     int // this look fails
		work      bool
		looks     int
		woken     bool // the loop has a token when it is to wait
		idle      bool // after the search
		wantError error
	}{
		"there already":             {before: 1, work: true, looks: 1},
		"between the looks":         {after: 1, work: true, looks: 2},
		"during the second":         {before: 2, work: true, looks: 2, woken: true},
		"after the second":          {after: 2, looks: 2, woken: true},
		"never":                     {looks: 2, idle: true},
		"the first look fails":      {fails: 1, looks: 1, wantError: failed},
		"the second look fails too": {fails: 2, looks: 2, wantError: failed},
	} {
		t.Run(name, func(t *testing.T) {
			l := &loop{parker: make(chan struct{}, 1)}
			work, looks := false, 0
			bring := func(now bool) {
				if now {
					work = true
					l.wake()
				}
			}
			found, err := l.search(func() (bool, error) {
				looks++
				if looks == c.fails {
					return false, failed
				}
				bring(looks == c.before)
				seen := work
				bring(looks == c.after)
				return seen, nil
			})
			require.Equal(t, c.wantError, err)
			require.Equal(t, c.work, found)
			require.Equal(t, c.looks, looks)
			require.Equal(t, c.woken, len(l.parker) == 1)
			require.Equal(t, c.idle, l.idle.Load())
			ctx, cancel := context.WithCancel(context.Background())
			if !c.woken {
				cancel()
			}
			l.await(ctx) // returns
			cancel()
			require.False(t, l.idle.Load(), "who is awake needs no token")
			l.wake()
			require.Empty(t, l.parker)
		})
	}
}
