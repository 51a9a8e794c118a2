package rt

import "github.com/popefgen/popefgen/ipu/num"

// The element types that Go lacks.
type (
	// Float16 is IEEE 754 half precision, PopEF's F16.
	Float16 = num.Float16
	// Float8E4M3 is PopEF's F8143.
	Float8E4M3 = num.Float8E4M3
	// Float8E5M2 is PopEF's F8152.
	Float8E5M2 = num.Float8E5M2
	// Float8 is PopEF's F8, whose encoding the format does not say.
	Float8 uint8
)
