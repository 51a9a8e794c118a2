package build

//go:generate go run ./internal/gen

// Graphcore has the operators that PopART adds, of domain ai.graphcore. See [Builder.Graphcore].
type Graphcore struct{ b *Builder }

// Preview has the operators of ONNX's domain ai.onnx.preview. See [Builder.Preview].
type Preview struct{ b *Builder }

// PreviewTraining has the operators of ONNX's domain ai.onnx.preview.training. See [Builder.PreviewTraining].
type PreviewTraining struct{ b *Builder }

// Graphcore returns the operators of domain ai.graphcore, which add to the Builder's model: PopART's builder.aiGraphcore.
func (b *Builder) Graphcore() Graphcore { return Graphcore{b} }

// Preview returns the operators of domain ai.onnx.preview, which add to the Builder's model.
func (b *Builder) Preview() Preview { return Preview{b} }

// PreviewTraining returns the operators of domain ai.onnx.preview.training, which add to the Builder's model.
func (b *Builder) PreviewTraining() PreviewTraining { return PreviewTraining{b} }
