package gen

import (
	"fmt"
	"os"

	"github.com/popefgen/popefgen/popef"
)

// ModelCopy returns the copy of the model that generated code embeds: the
// bytes of its files one after the other, which is again a PopEF file. The
// model must have been loaded from files that still exist.
func ModelCopy(p *Plan, m *popef.Model) (File, error) {
	f := File{Name: p.Embed}
	if p.Embed == "" {
		return f, fmt.Errorf("copying model %s: the package is generated without an embedded model", p.Model)
	}
	for _, path := range m.Files() {
		data, err := os.ReadFile(path)
		if err != nil {
			return f, fmt.Errorf("copying model %s to embed it: %w", p.Model, err)
		}
		f.Data = append(f.Data, data...)
	}
	return f, nil
}
