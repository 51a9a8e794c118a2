package op

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// TestSignatures: every exception is about an operator of the table, and names operands and attributes that its form has.
func TestSignatures(t *testing.T) {
	for name := range exceptions {
		require.Contains(t, table.Operators, name)
	}
	for name := range spans {
		require.Contains(t, table.Operators, name)
	}
	for name, list := range Signatures() {
		d := table.Operators[name]
		for _, s := range list {
			i := slices.IndexFunc(d.Forms, func(f lower.Form) bool { return f.Version == s.Version })
			require.GreaterOrEqual(t, i, 0, name)
			f := &d.Forms[i]
			if len(f.Operands) > 0 { // those of Scan are operands of its body
				for k, o := range s.Operands {
					require.NotNil(t, f.Operand(k), "%s-%d: operand %s", name, s.Version, o.Name)
					require.Equal(t, f.Operand(k).Name, o.Name, "%s-%d", name, s.Version)
					require.Equal(t, f.Operand(k).Repeats, o.Repeats, "%s-%d: %s", name, s.Version, o.Name)
				}
			}
			for _, a := range formals(forForm(spans[name], s.Version)) {
				require.NotNil(t, f.Attribute(a.Name), "%s-%d: attribute %s", name, s.Version, a.Name)
				require.False(t, a.Optional || a.Repeats, a.Name)
			}
			for k, o := range slices.Concat(s.Operands, s.Results) {
				require.NotEmpty(t, o.Name, "%s-%d", name, s.Version)
				require.False(t, o.Repeats && k < len(s.Operands)-1, "%s-%d: %s is not the last", name, s.Version, o.Name)
			}
		}
	}
}
