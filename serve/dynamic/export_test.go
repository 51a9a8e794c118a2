package dynamic

import "context"

// Compiled returns the PopEF file of an .onnx model.
func Compiled(ctx context.Context, path string, c Compile) ([]byte, error) {
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	return compiled(ctx, path, &o)
}
