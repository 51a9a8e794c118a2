package kernel

// nchwcKernels are the binders of the operators on the NCHWc layout.
var nchwcKernels = map[string]binder{
	"ToBlocks":      bindToBlocks,
	"FromBlocks":    bindFromBlocks,
	"BlockedConv":   bindBlockedConv,
	"BlockedPool":   bindBlockedPool,
	"BlockedResize": bindBlockedResize,
}

// nchwcTables declares the tables of their kernels.
var nchwcTables = map[string]declared{
	"BlockedConv":   blockedConvTableBytes,
	"BlockedPool":   blockedPoolTableBytes,
	"BlockedResize": blockedResizeTableBytes,
}
