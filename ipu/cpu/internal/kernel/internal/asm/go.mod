module github.com/popefgen/popefgen/ipu/cpu/internal/kernel/internal/asm

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/mmcloughlin/avo v0.6.0
	golang.org/x/mod v0.41.0
	golang.org/x/sync v0.23.0
)

require golang.org/x/tools v0.51.0 // indirect
