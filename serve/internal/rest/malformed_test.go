package rest

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

var update = flag.Bool("update", false, "write testdata/malformed.golden")

// malformed are requests that are wrong in one way each: what is sent to /v2/models/simple/infer, unless the path is given.
var malformed = []struct {
	name, body string
	header     []string
	path       string
	method     string
}{
	{name: "no body", body: ""},
	{name: "null", body: "null"},
	{name: "an array", body: "[]"},
	{name: "no inputs", body: "{}"},
	{name: "empty inputs", body: `{"inputs":[]}`},
	{name: "inputs is no array", body: `{"inputs":{}}`},
	{name: "inputs is null", body: `{"inputs":null}`},
	{name: "an input is no object", body: `{"inputs":[1]}`},
	{name: "cut short", body: `{"inputs":[{"name":"INPUT0`},
	{name: "trailing bytes", body: good() + "x"},
	{name: "two objects", body: good() + good()},
	{name: "trailing comma", body: `{"inputs":[{"name":"INPUT0",}]}`},
	{name: "a comment", body: `{/* no */"inputs":[]}`},
	{name: "single quotes", body: `{'inputs':[]}`},
	{name: "a key without quotes", body: `{inputs:[]}`},
	{name: "unknown key", body: `{"input":[]}`},
	{name: "unknown key of an input", body: `{"inputs":[{"name":"INPUT0","dtype":"INT32"}]}`},
	{name: "key in capitals", body: `{"Inputs":[]}`},
	{name: "inputs twice", body: `{"inputs":[],"inputs":[]}`},
	{name: "name twice", body: `{"inputs":[{"name":"INPUT0","name":"INPUT1"}]}`},
	{name: "invalid UTF-8", body: "{\"id\":\"\xff\",\"inputs\":[]}"},
	{name: "control character in a string", body: "{\"id\":\"a\nb\",\"inputs\":[]}"},
	{name: "an escape that is none", body: `{"id":"\q","inputs":[]}`},
	{name: "half an escape", body: `{"id":"\u12g4","inputs":[]}`},
	{name: "id is a number", body: `{"id":7,"inputs":[]}`},
	{name: "id too long", body: `{"id":"` + strings.Repeat("i", 257) + `","inputs":[]}`},
	{name: "a long string", body: `{"id":"` + strings.Repeat("i", 10<<10) + `","inputs":[]}`},
	{name: "too many parameters", body: `{"parameters":{"p":1` + strings.Repeat(`,"p":1`, 64) + `},"inputs":[]}`},
	{name: "too many inputs", body: `{"inputs":[` + strings.Repeat(input("INPUT0", "[1,16]", "INT32", numbers(0, 16, 1))+",", 70) + `]}`},
	{name: "deeply nested", body: `{"parameters":{"p":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `},"inputs":[]}`},
	{name: "parameters is an array", body: `{"parameters":[],"inputs":[]}`},
	{name: "timeout is negative", body: `{"parameters":{"timeout":-1},"inputs":[]}`},
	{name: "timeout is text", body: `{"parameters":{"timeout":"soon"},"inputs":[]}`},
	{name: "timeout is huge", body: `{"parameters":{"timeout":9223372036854775807},"inputs":[]}`},
	{name: "priority is a fraction", body: `{"parameters":{"priority":1.5},"inputs":[]}`},
	{name: "contract is no hash", body: `{"parameters":{"popefgen_contract":"abc"},"inputs":[]}`},
	{name: "sequence", body: `{"parameters":{"sequence_id":1},"inputs":[]}`},
	{name: "shared memory", body: `{"inputs":[{"name":"INPUT0","shape":[1,16],"datatype":"INT32","parameters":{"shared_memory_region":"r"}}]}`},
	{name: "no name", body: `{"inputs":[{"shape":[1,16],"datatype":"INT32","data":[]}]}`},
	{name: "no data", body: `{"inputs":[{"name":"INPUT0","shape":[1,16],"datatype":"INT32"}]}`},
	{name: "data is null", body: inputs(input("INPUT0", "[1,16]", "INT32", "null"))},
	{name: "data is a number", body: inputs(input("INPUT0", "[1,16]", "INT32", "1"))},
	{name: "unknown input", body: inputs(input("INPUT7", "[1,16]", "INT32", numbers(0, 16, 1)))},
	{name: "missing input", body: inputs(input("INPUT0", "[1,16]", "INT32", numbers(0, 16, 1)))},
	{name: "input twice", body: inputs(input("INPUT0", "[1,16]", "INT32", numbers(0, 16, 1)), input("INPUT0", "[1,16]", "INT32", numbers(0, 16, 1)))},
	{name: "another data type", body: inputs(input("INPUT0", "[1,16]", "FP32", numbers(0, 16, 1)))},
	{name: "a data type that is none", body: inputs(input("INPUT0", "[1,16]", "int32", numbers(0, 16, 1)))},
	{name: "BYTES", body: inputs(input("INPUT0", "[1,16]", "BYTES", `["a"]`))},
	{name: "rank", body: inputs(input("INPUT0", "[16]", "INT32", numbers(0, 16, 1)))},
	{name: "a fixed size", body: inputs(input("INPUT0", "[1,15]", "INT32", numbers(0, 15, 1)))},
	{name: "size -1", body: inputs(input("INPUT0", "[-1,16]", "INT32", numbers(0, 16, 1)))},
	{name: "size 0", body: inputs(input("INPUT0", "[0,16]", "INT32", "[]"))},
	{name: "size 2^62", body: inputs(input("INPUT0", "[4611686018427387904,16]", "INT32", "[]"))},
	{name: "size 2^63", body: inputs(input("INPUT0", "[9223372036854775808,16]", "INT32", "[]"))},
	{name: "size is a fraction", body: inputs(input("INPUT0", "[1.0,16]", "INT32", numbers(0, 16, 1)))},
	{name: "more samples than the model has", body: inputs(input("INPUT0", "[9,16]", "INT32", "[]"))},
	{name: "a shape of 65 sizes", body: inputs(input("INPUT0", numbers(0, 65, 1), "INT32", "[]"))},
	{name: "samples differ", body: inputs(input("INPUT0", "[1,16]", "INT32", numbers(0, 16, 1)), input("INPUT1", "[2,16]", "INT32", numbers(0, 32, 1)))},
	{name: "too few elements", body: inputs(input("INPUT0", "[1,16]", "INT32", numbers(0, 15, 1)))},
	{name: "too many elements", body: inputs(input("INPUT0", "[1,16]", "INT32", numbers(0, 17, 1)))},
	{name: "nested otherwise than the shape", body: inputs(input("INPUT0", "[2,16]", "INT32", "["+numbers(0, 32, 1)+"]"))},
	{name: "nested too deeply", body: inputs(input("INPUT0", "[1,16]", "INT32", "[["+numbers(0, 16, 1)+"]]"))},
	{name: "a fraction for an integer", body: inputs(input("INPUT0", "[1,16]", "INT32", "[1.5]"))},
	{name: "an integer written as 1.0", body: inputs(input("INPUT0", "[1,16]", "INT32", "[1.0]"))},
	{name: "an integer out of range", body: inputs(input("INPUT0", "[1,16]", "INT32", "[2147483648]"))},
	{name: "true for an integer", body: inputs(input("INPUT0", "[1,16]", "INT32", "[true]"))},
	{name: "text for an integer", body: inputs(input("INPUT0", "[1,16]", "INT32", `["1"]`))},
	{name: "a leading zero", body: inputs(input("INPUT0", "[1,16]", "INT32", "[01]"))},
	{name: "a leading plus", body: inputs(input("INPUT0", "[1,16]", "INT32", "[+1]"))},
	{name: "NaN", body: inputs(input("INPUT0", "[1,2]", "FP32", "[NaN,1]")), path: "/v2/models/identity_FP32/infer"},
	{name: "Infinity", body: inputs(input("INPUT0", "[1,2]", "FP32", "[-Infinity,1]")), path: "/v2/models/identity_FP32/infer"},
	{name: "1e400", body: inputs(input("INPUT0", "[1,2]", "FP32", "[1,1e400]")), path: "/v2/models/identity_FP32/infer"},
	{name: "a point without digits", body: inputs(input("INPUT0", "[1,2]", "FP32", "[1.,1]")), path: "/v2/models/identity_FP32/infer"},
	{name: "a long number", body: inputs(input("INPUT0", "[1,2]", "FP32", "["+strings.Repeat("1", 200)+",1]")), path: "/v2/models/identity_FP32/infer"},
	{name: "an output that is none", body: good()[:len(good())-1] + `,"outputs":[{"name":"OUTPUT7"}]}`},
	{name: "an output twice", body: good()[:len(good())-1] + `,"outputs":[{"name":"OUTPUT0"},{"name":"OUTPUT0"}]}`},
	{name: "an output without a name", body: good()[:len(good())-1] + `,"outputs":[{}]}`},
	{name: "binary_data is text", body: good()[:len(good())-1] + `,"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":"yes"}}]}`},
	{name: "classification is negative", body: good()[:len(good())-1] + `,"outputs":[{"name":"OUTPUT0","parameters":{"classification":-1}}]}`},
	{name: "binary without a header's length", body: inputs(bits("64"), input("INPUT1", "[1,16]", "INT32", numbers(0, 16, 1)))},
	{name: "a header's length that is no number", body: good(), header: []string{headerLength, "0x10"}},
	{name: "a header's length below 0", body: good(), header: []string{headerLength, "-1"}},
	{name: "a header longer than the body", body: good(), header: []string{headerLength, "5000"}},
	{name: "a header longer than any", body: good(), header: []string{headerLength, "70000"}},
	{name: "a header of 2^64 bytes", body: good(), header: []string{headerLength, "18446744073709551616"}},
	{name: "a header that ends too early", body: good(), header: []string{headerLength, "20"}},
	{name: "binary size below 0", body: inputs(bits("-64")), header: []string{headerLength, fmt.Sprint(len(inputs(bits("-64"))))}},
	{name: "binary size of 2^62", body: inputs(bits("4611686018427387904")), header: []string{headerLength, fmt.Sprint(len(inputs(bits("4611686018427387904"))))}},
	{name: "another binary size", body: inputs(bits("60")), header: []string{headerLength, fmt.Sprint(len(inputs(bits("60"))))}},
	{name: "too few bytes", body: inputs(input("INPUT1", "[1,16]", "INT32", numbers(0, 16, 1)), bits("64")) + "short", header: []string{headerLength, fmt.Sprint(len(inputs(input("INPUT1", "[1,16]", "INT32", numbers(0, 16, 1)), bits("64"))))}},
	{name: "too many bytes", body: good() + "more", header: []string{headerLength, fmt.Sprint(len(good()))}},
	{name: "raw for two inputs", body: "12345678", header: []string{headerLength, "0"}},
	{name: "raw of another length", body: "1234567", header: []string{headerLength, "0"}, path: "/v2/models/identity_FP32/infer"},
	{name: "raw of too many samples", body: strings.Repeat("12345678", 5), header: []string{headerLength, "0"}, path: "/v2/models/identity_FP32/infer"},
	{name: "raw compressed", body: "12345678", header: []string{headerLength, "0", "Content-Encoding", "gzip"}, path: "/v2/models/identity_FP32/infer"},
	{name: "a BOOL of 2", body: "\x01\x02", header: []string{headerLength, "0"}, path: "/v2/models/identity_BOOL/infer"},
	{name: "an encoding that is none", body: good(), header: []string{"Content-Encoding", "br"}},
	{name: "no gzip", body: good(), header: []string{"Content-Encoding", "gzip"}},
	{name: "unknown model", body: good(), path: "/v2/models/other/infer"},
	{name: "unknown version", body: good(), path: "/v2/models/simple/versions/7/infer"},
	{name: "a path as a name", body: good(), path: "/v2/models/..%2f..%2fetc%2fpasswd/infer"},
	{name: "an empty name", body: good(), path: "/v2/models//infer"},
	{name: "dots", body: good(), path: "/v2/models/../models/simple/infer"},
	{name: "GET", path: "/v2/models/simple/infer", method: "GET"},
	{name: "DELETE", path: "/v2/models/simple", method: "DELETE"},
	{name: "a path that is too long", path: strings.Repeat("/a", 1000), method: "GET"},
}

func input(name, shape, datatype, data string) string {
	return fmt.Sprintf(`{"name":"%s","shape":%s,"datatype":"%s","data":%s}`, name, shape, datatype, data)
}

func bits(size string) string {
	return `{"name":"INPUT0","shape":[1,16],"datatype":"INT32","parameters":{"binary_data_size":` + size + `}}`
}

func inputs(all ...string) string { return `{"inputs":[` + strings.Join(all, ",") + `]}` }

func good() string {
	return inputs(input("INPUT0", "[1,16]", "INT32", numbers(0, 16, 1)), input("INPUT1", "[1,16]", "INT32", numbers(0, 16, 1)))
}

// TestMalformed compares the answers to malformed requests with testdata/malformed.golden; -update writes it. None comes as far as the
// model.
func TestMalformed(t *testing.T) {
	models := []*testmodel.Model{testmodel.Simple(), testmodel.Identity(oip.FP32, 4, 2), testmodel.Identity(oip.Bool, 4, 2)}
	h := served(t, Options{}, models...)
	var got strings.Builder
	for _, c := range malformed {
		path, method := c.path, c.method
		if path == "" {
			path = "/v2/models/simple/infer"
		}
		if method == "" {
			method = "POST"
		}
		w := ask(h, method, path, c.body, c.header...)
		require.GreaterOrEqual(t, w.Code, 400, c.name)
		require.Less(t, w.Code, 502, c.name)
		require.NotEqual(t, 500, w.Code, c.name)
		fmt.Fprintf(&got, "%s\n  %d %s\n", c.name, w.Code, w.Body)
	}
	for _, m := range models {
		require.Zero(t, m.Runs.Load())
	}
	require.Equal(t, 200, ask(h, "POST", "/v2/models/simple/infer", good()).Code)
	const file = "testdata/malformed.golden"
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}
