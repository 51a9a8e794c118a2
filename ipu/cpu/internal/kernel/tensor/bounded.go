package tensor

// boundedKernel limits the float32 result of a kernel that does not do so
// itself.
type boundedKernel struct {
	Kernel
	low, high float32

	// The run in progress.
	out   []float32
	parts int
}

// NewBoundedKernel returns a kernel that runs k, then limits its result, of F32, to
// low and high.
func NewBoundedKernel(k Kernel, low, high float32) Kernel {
	return &boundedKernel{Kernel: k, low: low, high: high}
}

// Run implements [Kernel].
func (k *boundedKernel) Run(p Pool, in, out [][]byte, scratch []byte) error {
	if err := k.Kernel.Run(p, in, out, scratch); err != nil {
		return err
	}
	k.out = F32s(out[0])
	k.parts = Cut(p, len(k.out), 1)
	p.Run(k, k.parts)
	k.out = nil
	return nil
}

// Do implements [Task].
func (k *boundedKernel) Do(part int) {
	lo, hi := Span(len(k.out), k.parts, part, 64)
	y := k.out[lo:hi]
	for i, v := range y {
		y[i] = min(max(v, k.low), k.high)
	}
}
