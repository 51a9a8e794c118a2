package metrics_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/internal/metrics"
)

// named is a metric in an expression, with its suffix and the labels that it is chosen by.
var named = regexp.MustCompile(`\b((?:popefgen|nv)_[a-z_]+)(?:\{([^}]*)\})?`)

// misnamed returns what an expression of a dashboard names that is in no table.
func misnamed(expr string) (wrong, found []string) {
	for _, m := range named.FindAllStringSubmatch(expr, -1) {
		name := m[1]
		at := slices.IndexFunc(metrics.Table, func(t metrics.Metric) bool {
			if t.Kind != metrics.Distribution {
				return t.Name == name
			}
			base, suffix, ok := strings.Cut(name, t.Name)
			return ok && base == "" && slices.Contains([]string{"_bucket", "_sum", "_count"}, suffix)
		})
		if at < 0 {
			wrong = append(wrong, name)
			continue
		}
		found = append(found, metrics.Table[at].Name)
		for _, l := range regexp.MustCompile(`([a-z_]+)=`).FindAllStringSubmatch(m[2], -1) {
			if l[1] != "job" && !slices.Contains(metrics.Table[at].Labels, l[1]) {
				wrong = append(wrong, name+"{"+l[1]+"}")
			}
		}
	}
	return wrong, found
}

// TestDashboard: every metric that the dashboard shows, and every label that it chooses by, is in the table, and every metric of
// the table is shown.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/grafana/popefgen.json")
	require.NoError(t, err)
	var d struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct {
				Query json.RawMessage
			}
		}
	}
	require.NoError(t, json.Unmarshal(text, &d))
	var exprs []string
	ids := map[int]bool{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		for _, target := range p.Targets {
			exprs = append(exprs, target.Expr)
			require.Equal(t, strings.Count(target.Expr, "("), strings.Count(target.Expr, ")"), target.Expr)
		}
	}
	for _, v := range d.Templating.List {
		exprs = append(exprs, string(v.Query))
	}
	shown := map[string]bool{}
	for _, e := range exprs {
		wrong, found := misnamed(e)
		require.Empty(t, wrong, e)
		for _, f := range found {
			shown[f] = true
		}
	}
	for _, m := range metrics.Table {
		require.True(t, shown[m.Name], "%s is in no panel", m.Name)
	}
	for _, bad := range []string{"popefgen_missing", "popefgen_queue_seconds", "popefgen_ready_sum", `popefgen_ready{model="x"}`} {
		wrong, _ := misnamed(bad)
		require.NotEmpty(t, wrong, bad)
	}
}
