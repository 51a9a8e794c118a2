package modelrt

import "github.com/popefgen/popefgen/popef/contract"

// Anchor is one anchor of a model, see package contract.
type Anchor = contract.Anchor
