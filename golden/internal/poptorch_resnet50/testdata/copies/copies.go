// Package copies is what popefgen vet is tried on.
package copies

import "github.com/popefgen/popefgen/golden/internal/poptorch_resnet50/want"

func first(out *resnet50.Outputs) (n int) {
	for _, row := range out.FcFcModelFcFcGemm0[0].Data {
		n += int(row[0])
	}
	return n
}
