// Package costs holds the numbers of the cost model: records of what operators take
// on a machine, from which the engine estimates layouts and depth-first tiles, in
// their JSON form, and those that are built in.
package costs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel"
)

// Record is what steps of a plan take on one machine: plain data, from which
// the engine estimates which activations are kept in NCHWc or NHWC,
// and where operators are tiled depth-first. No result depends on it. Times are
// nanoseconds of one thread, as package calibrate measures them; only their
// ratios matter.
//
// In JSON the fields have the names of their tags, and "format" says which
// version of them ([Format]) they are.
type Record struct {
	Path      string `json:"path"`      // the instructions that they hold for, see [kernel.CostPath]
	Processor string `json:"processor"` // on which they were measured

	CacheBytes int64 `json:"cache_bytes"` // the size of a core's second-level cache

	Node    float64 `json:"node_ns"`    // a step of a plan more
	Convert float64 `json:"convert_ns"` // an element that is moved to or from NCHWc
	Element float64 `json:"element_ns"` // an element that an operator on single elements computes, or pooling reads

	// An element that is read by a reduction over all positions and by resizing,
	// in NCHW and in NCHWc.
	Mean         float64 `json:"mean_ns"`
	MeanBlocks   float64 `json:"mean_blocks_ns"`
	Resize       float64 `json:"resize_ns"`
	ResizeBlocks float64 `json:"resize_blocks_ns"`

	Half float64 `json:"half_ns"` // an element of half precision that a convolution reads or writes in NCHW, besides

	// A product of a convolution in NCHW, with windows of several elements and
	// of one; in NCHWc; in NCHWc of which one holds all output channels; in
	// NCHWc with windows of several elements where rows are very short.
	Product       float64 `json:"product_ns"`
	PointProduct  float64 `json:"point_product_ns"`
	BlockProduct  float64 `json:"block_product_ns"`
	NarrowProduct float64 `json:"narrow_product_ns"`
	ShortProduct  float64 `json:"short_product_ns"`

	// A product of a convolution of single channels, in rows of whole vectors and
	// in NCHWc, with strides of 1 and with others.
	Depth             float64 `json:"depth_ns"`
	DepthStrided      float64 `json:"depth_strided_ns"`
	BlockDepth        float64 `json:"block_depth_ns"`
	BlockDepthStrided float64 `json:"block_depth_strided_ns"`

	// A product of bytes in NCHW and in NHWC, the same of a convolution of
	// single channels, and a byte that is converted. All are 0 where there are no
	// kernels for NHWC.
	BytesProduct  float64 `json:"bytes_product_ns"`
	PixelsProduct float64 `json:"pixels_product_ns"`
	BytesDepth    float64 `json:"bytes_depth_ns"`
	PixelsDepth   float64 `json:"pixels_depth_ns"`
	PixelsConvert float64 `json:"pixels_convert_ns"`
}

// Format is the version of the JSON form of [Record].
const Format = 1

// costsFile is the JSON form of costs.
type costsFile struct {
	Format int `json:"format"`
	Record
}

// What a record may hold at most and at least.
const (
	costsBytes        = 64 << 10 // of JSON
	processorBytes    = 256
	leastNs, mostNs   = 1e-7, 1e6
	leastCache, mostC = 4 << 10, 1 << 30
)

// ErrRecord is what errors about records of costs wrap.
var ErrRecord = errors.New("unusable record of costs")

// JSON returns the record as JSON, with a line for each field.
func (c Record) JSON() ([]byte, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(costsFile{Format, c}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write a record of costs: %w", err)
	}
	return append(b, '\n'), nil
}

// Parse reads a record of costs from its JSON form and checks it. Errors
// wrap [ErrRecord].
func Parse(data []byte) (Record, error) {
	var f costsFile
	if len(data) > costsBytes {
		return Record{}, fmt.Errorf("%w: it has %d bytes, want %d at most", ErrRecord, len(data), costsBytes)
	}
	var version struct {
		Format *int `json:"format"`
	}
	switch err := json.Unmarshal(data, &version); {
	case err != nil:
		return Record{}, fmt.Errorf("%w: %v; want what popefgen calibrate writes", ErrRecord, err)
	case version.Format == nil || *version.Format != Format:
		return Record{}, fmt.Errorf(`%w: it has no "format": %d; measure it again (popefgen calibrate)`, ErrRecord, Format)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return Record{}, fmt.Errorf("%w: %v; want what popefgen calibrate writes", ErrRecord, err)
	}
	return f.Record, f.Check()
}

// Check reports what of the record can't be. Errors wrap [ErrRecord].
func (c Record) Check() error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrRecord}, args...)...)
	}
	if !kernel.IsCostPath(c.Path) {
		return wrong("its path is %q, want one of %s", c.Path, strings.Join(kernel.CostPaths(), ", "))
	}
	if len(c.Processor) > processorBytes || !utf8.ValidString(c.Processor) {
		return wrong("its processor's name has %d bytes, want %d of UTF-8 at most", len(c.Processor), processorBytes)
	}
	if c.CacheBytes < leastCache || c.CacheBytes > mostC {
		return wrong("its cache_bytes is %d, want %d to %d", c.CacheBytes, int64(leastCache), int64(mostC))
	}
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("json")
		ns, ok := v.Field(i).Interface().(float64)
		switch {
		case !ok, ns >= leastNs && ns <= mostNs:
		case ns == 0 && c.Path != kernel.PathVNNI && ofPixels(v.Type().Field(i).Name):
		default:
			return wrong("its %s is %v, want %v to %v", name, ns, leastNs, mostNs)
		}
	}
	return nil
}

// ofPixels reports whether a field is about bytes, in planes or as pixels.
func ofPixels(field string) bool {
	return strings.HasPrefix(field, "Pixels") || strings.HasPrefix(field, "Bytes")
}

// ReadFile reads a file of costs.
func ReadFile(name string) ([]byte, error) {
	if st, err := os.Stat(name); err != nil {
		if e := (*fs.PathError)(nil); errors.As(err, &e) { // whose file the option names
			err = e.Err
		}
		return nil, err
	} else if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: it is no regular file", ErrRecord)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, costsBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > costsBytes {
		return nil, fmt.Errorf("%w: it has more than %s", ErrRecord, budget.Text(costsBytes))
	}
	return data, nil
}
