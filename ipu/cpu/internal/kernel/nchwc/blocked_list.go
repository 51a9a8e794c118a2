package nchwc

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// Kernels are the binders of the operators on the NCHWc layout.
var Kernels = map[string]tensor.Binder{
	"ToBlocks":      bindToBlocks,
	"FromBlocks":    bindFromBlocks,
	"BlockedConv":   bindBlockedConv,
	"BlockedPool":   bindBlockedPool,
	"BlockedResize": bindBlockedResize,
}

// Tables declares the tables of their kernels.
var Tables = map[string]tensor.Declared{
	"BlockedConv":   blockedConvTableBytes,
	"BlockedPool":   blockedPoolTableBytes,
	"BlockedResize": blockedResizeTableBytes,
}
