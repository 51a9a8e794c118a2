package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/inspect"
	"github.com/popefgen/popefgen/cmd/popefgen/internal/kind"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/popef"
)

// inspectONNX describes an ONNX file, and what it is once it is compiled with
// the flags in modelFlags. A file whose dimensions are open is described all
// the same; open says what is to be given for more.
func inspectONNX(c *cli.Context, paths []string) (in *inspect.Inspection, open error, err error) {
	if len(paths) > 1 {
		return nil, nil, fmt.Errorf("found %d files, want one ONNX model, or PopEF files", len(paths))
	}
	m, err := onnx.ReadFileContext(c.Context, paths[0])
	if err != nil {
		return nil, nil, kind.NotONNX(paths[0], err)
	}
	in = inspect.New()
	in.DescribeONNX(paths[0], m)
	r, err := compileONNX(c, paths[0])
	var dims *onnx.DimError
	if errors.As(err, &dims) {
		return in, err, nil
	}
	if err != nil {
		return in, nil, err
	}
	data, err := r.Bytes()
	if err != nil {
		return in, nil, err
	}
	reader := popef.NewReader()
	defer reader.Close()
	base := filepath.Base(paths[0])
	if err := reader.AddBytes(strings.TrimSuffix(base, filepath.Ext(base))+".popef", data); err != nil {
		return in, nil, err
	}
	options, err := engineOptions(c)
	if err != nil {
		return in, nil, err
	}
	return in, nil, in.Add(c.Context, reader, options, memberAsked(c))
}
