package rest

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

// served returns a handler of models, which is ready.
func served(t testing.TB, o Options, models ...*testmodel.Model) http.Handler {
	c := core.New()
	for _, m := range models {
		_, err := c.Add(m)
		require.NoError(t, err)
	}
	c.Start()
	return New(c, o)
}

// classes is a model that gives its scores back, and has labels for two of them.
func classes() *testmodel.Model {
	m := testmodel.Identity(oip.FP32, 4, 3)
	m.Described.Name = "classes"
	m.Described.Outputs[0].Labels = []string{"cat", "dog"}
	return m
}

// ask sends a request and returns status and body.
func ask(h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func floats(v ...float32) string {
	var b []byte
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return string(b)
}

func ints(v ...int32) string {
	var b []byte
	for _, i := range v {
		b = binary.LittleEndian.AppendUint32(b, uint32(i))
	}
	return string(b)
}

func numbers(from, to, step int) string {
	var all []string
	for i := from; i != to; i += step {
		all = append(all, strconv.Itoa(i))
	}
	return "[" + strings.Join(all, ",") + "]"
}

const simple16 = `{"id":"42","inputs":[{"name":"INPUT0","shape":[1,16],"datatype":"INT32","data":%s},{"name":"INPUT1","shape":[1,16],"datatype":"INT32","data":%s}]%s}`

func TestJSON(t *testing.T) {
	h := served(t, Options{}, testmodel.Simple())
	body := fmt.Sprintf(simple16, numbers(0, 16, 1), "["+numbers(16, 0, -1)+"]", "")
	for _, path := range []string{"/v2/models/simple/infer", "/v2/models/simple/versions/1/infer"} {
		w := ask(h, "POST", path, body)
		require.Equal(t, 200, w.Code, w.Body)
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		require.Equal(t, `{"id":"42","model_name":"simple","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"INT32","shape":[1,16],"data":[16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16]},{"name":"OUTPUT1","datatype":"INT32","shape":[1,16],"data":[-16,-14,-12,-10,-8,-6,-4,-2,0,2,4,6,8,10,12,14]}]}`, w.Body.String())
	}
	w := ask(h, "POST", "/v2/models/simple/infer", fmt.Sprintf(simple16, numbers(0, 16, 1), numbers(0, 16, 1), `,"outputs":[{"name":"OUTPUT1"}]`))
	require.Equal(t, 200, w.Code, w.Body)
	require.NotContains(t, w.Body.String(), "OUTPUT0")
}

// TestEveryType sends the numbers of every type through a model that gives its input back, as JSON and as bytes.
func TestEveryType(t *testing.T) {
	data := map[oip.DataType]string{
		oip.Bool: "[true,false]", oip.FP16: "[1.5,-65504]", oip.FP32: "[1.5,-3.4028235e+38]", oip.FP64: "[0.1,-1e-300]",
		oip.Int8: "[-128,127]", oip.Int16: "[-32768,32767]", oip.Int32: "[-2147483648,1]", oip.Int64: "[-9223372036854775808,1]",
		oip.Uint8: "[0,255]", oip.Uint16: "[0,65535]", oip.Uint32: "[0,4294967295]", oip.Uint64: "[0,18446744073709551615]",
	}
	for _, typ := range testmodel.Types {
		t.Run(typ.String(), func(t *testing.T) {
			h := served(t, Options{}, testmodel.Identity(typ, 4, 2))
			path := "/v2/models/identity_" + typ.String() + "/infer"
			size := 2 * typ.Size()
			head := fmt.Sprintf(`{"inputs":[{"name":"INPUT0","shape":[1,2],"datatype":"%s","parameters":{"binary_data_size":%d}}],"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}`, typ, size)
			bits := strings.Repeat("\x01\x00", typ.Size())
			w := ask(h, "POST", path, head+bits, headerLength, strconv.Itoa(len(head)))
			require.Equal(t, 200, w.Code, w.Body)
			n, err := strconv.Atoi(w.Header().Get(headerLength))
			require.NoError(t, err)
			require.Equal(t, bits, w.Body.String()[n:])
			require.Equal(t, fmt.Sprintf(`{"model_name":"identity_%s","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"%s","shape":[1,2],"parameters":{"binary_data_size":%d}}]}`, typ, typ, size), w.Body.String()[:n])

			w = ask(h, "POST", path, bits, headerLength, "0") // the body is the tensor
			require.Equal(t, 200, w.Code, w.Body)
			require.True(t, strings.HasSuffix(w.Body.String(), "}"+bits))

			text := fmt.Sprintf(`{"inputs":[{"name":"INPUT0","shape":[1,2],"datatype":"%s","data":%s}]}`, typ, data[typ])
			if typ == oip.BF16 {
				w = ask(h, "POST", path, strings.Replace(text, `"data":`, `"data":[1,2]`, 1))
				require.Equal(t, 400, w.Code)
				require.Contains(t, w.Body.String(), "JSON has no data of type BF16")
				w = ask(h, "POST", path, strings.Split(head, `,"outputs"`)[0]+"}"+bits, headerLength, strconv.Itoa(len(strings.Split(head, `,"outputs"`)[0])+1))
				require.Equal(t, 400, w.Code)
				require.Contains(t, w.Body.String(), "ask for it with binary_data")
				return
			}
			w = ask(h, "POST", path, text)
			require.Equal(t, 200, w.Code, w.Body)
			require.Contains(t, w.Body.String(), `"data":`+data[typ])
		})
	}
}

// TestMixed has a tensor as JSON and one as bytes, and outputs of both kinds.
func TestMixed(t *testing.T) {
	h := served(t, Options{}, testmodel.Simple())
	head := `{"parameters":{"binary_data_output":true},"inputs":[{"name":"INPUT1","shape":[1,16],"datatype":"INT32","parameters":{"binary_data_size":64}},{"name":"INPUT0","shape":[1,16],"datatype":"INT32","data":` + numbers(0, 16, 1) + `}],"outputs":[{"name":"OUTPUT1","parameters":{"binary_data":false}},{"name":"OUTPUT0"}]}`
	w := ask(h, "POST", "/v2/models/simple/infer", head+ints(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), headerLength, strconv.Itoa(len(head)))
	require.Equal(t, 200, w.Code, w.Body)
	text := `{"model_name":"simple","model_version":"1","outputs":[{"name":"OUTPUT1","datatype":"INT32","shape":[1,16],"data":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]},{"name":"OUTPUT0","datatype":"INT32","shape":[1,16],"parameters":{"binary_data_size":64}}]}`
	require.Equal(t, text+ints(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), w.Body.String())
	require.Equal(t, strconv.Itoa(len(text)), w.Header().Get(headerLength))
	require.Equal(t, "application/octet-stream", w.Header().Get("Content-Type"))
	require.Equal(t, strconv.Itoa(w.Body.Len()), w.Header().Get("Content-Length"))
}

func TestClassification(t *testing.T) {
	h := served(t, Options{}, classes())
	request := `{"inputs":[{"name":"INPUT0","shape":[2,3],"datatype":"FP32","data":[1,3,2,0.5,0.5,0.25]}],"outputs":[{"name":"OUTPUT0","parameters":{"classification":%s}}]}`
	w := ask(h, "POST", "/v2/models/classes/infer", fmt.Sprintf(request, "2"))
	require.Equal(t, `{"model_name":"classes","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"BYTES","shape":[2,2],"data":["3.000000:1:dog","2.000000:2","0.500000:0:cat","0.500000:1:dog"]}]}`, w.Body.String())
	w = ask(h, "POST", "/v2/models/classes/infer", fmt.Sprintf(request, `1,"binary_data":true`))
	want := `{"model_name":"classes","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"BYTES","shape":[2,1],"parameters":{"binary_data_size":36}}]}`
	require.Equal(t, want+"\x0e\x00\x00\x003.000000:1:dog\x0e\x00\x00\x000.500000:0:cat", w.Body.String())
	w = ask(h, "POST", "/v2/models/classes/infer", fmt.Sprintf(request, "1000000000"))
	require.Contains(t, w.Body.String(), `"shape":[2,3]`)
}

func TestNotFinite(t *testing.T) {
	h := served(t, Options{}, testmodel.Identity(oip.FP32, 1, 2))
	head := `{"inputs":[{"name":"INPUT0","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}],"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":%v}}]}`
	for _, binary := range []bool{false, true} {
		head := fmt.Sprintf(head, binary)
		w := ask(h, "POST", "/v2/models/identity_FP32/infer", head+floats(1, float32(math.NaN())), headerLength, strconv.Itoa(len(head)))
		if binary {
			require.Equal(t, 200, w.Code)
			continue
		}
		require.Equal(t, 400, w.Code)
		require.Contains(t, w.Body.String(), "element 1 of output 'OUTPUT0' is not finite")
	}
}

func packed(t *testing.T, encoding, body string) string {
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if encoding == "deflate" {
		w = zlib.NewWriter(&b)
	}
	_, err := io.WriteString(w, body)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

func TestCompression(t *testing.T) {
	h := served(t, Options{}, testmodel.Identity(oip.FP32, 4, 1000))
	head := `{"inputs":[{"name":"INPUT0","shape":[1,1000],"datatype":"FP32","parameters":{"binary_data_size":4000}}],"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}`
	data := strings.Repeat(floats(1, 2), 500)
	for range 2 { // with what the first left
		for _, encoding := range []string{"gzip", "deflate"} {
			w := ask(h, "POST", "/v2/models/identity_FP32/infer", packed(t, encoding, head+data), headerLength, strconv.Itoa(len(head)), "Content-Encoding", encoding, "Accept-Encoding", encoding)
			require.Equal(t, 200, w.Code, w.Body)
			require.Equal(t, encoding, w.Header().Get("Content-Encoding"))
			require.Less(t, w.Body.Len(), 1000)
			var r io.Reader
			var err error
			if encoding == "gzip" {
				r, err = gzip.NewReader(w.Body)
			} else {
				r, err = zlib.NewReader(w.Body)
			}
			require.NoError(t, err)
			got, err := io.ReadAll(r)
			require.NoError(t, err)
			require.True(t, strings.HasSuffix(string(got), "}"+data))

			broken := packed(t, encoding, head+data)
			broken = broken[:len(broken)-6]
			w = ask(h, "POST", "/v2/models/identity_FP32/infer", broken, headerLength, strconv.Itoa(len(head)), "Content-Encoding", encoding)
			require.Equal(t, 400, w.Code, w.Body)
			w = ask(h, "POST", "/v2/models/identity_FP32/infer", "not packed", "Content-Encoding", encoding)
			require.Equal(t, 400, w.Code, w.Body)
			require.Contains(t, w.Body.String(), "is not what its Content-Encoding says: "+encoding)
		}
	}
	for accept, want := range map[string]string{"": "", "br": "", "gzip, deflate": "gzip", "deflate": "deflate", "gzip;q=0": "", "gzip;q=0.2, deflate; q=0.5": "deflate", "identity": ""} {
		w := ask(h, "POST", "/v2/models/identity_FP32/infer", head+data, headerLength, strconv.Itoa(len(head)), "Accept-Encoding", accept)
		require.Equal(t, want, w.Header().Get("Content-Encoding"), accept)
	}
	w := ask(h, "POST", "/v2/models/identity_FP32/infer", head+data, "Content-Encoding", "br")
	require.Equal(t, 415, w.Code)
	require.Equal(t, "gzip, deflate", w.Header().Get("Accept-Encoding"))
}

func TestMetadata(t *testing.T) {
	h := served(t, Options{Name: "triton", Version: "2.50"}, testmodel.Simple())
	for path, want := range map[string]string{
		"/v2":                          `{"name":"triton","version":"2.50","extensions":["binary_tensor_data","classification","model_configuration","schedule_policy","statistics"]}`,
		"/v2/health/live":              "",
		"/v2/health/ready":             "",
		"/v2/models/simple/ready":      "",
		"/v2/models/simple":            `{"name":"simple","versions":["1"],"platform":"popef","inputs":[{"name":"INPUT0","datatype":"INT32","shape":[-1,16]},{"name":"INPUT1","datatype":"INT32","shape":[-1,16]}],"outputs":[{"name":"OUTPUT0","datatype":"INT32","shape":[-1,16]},{"name":"OUTPUT1","datatype":"INT32","shape":[-1,16]}]}`,
		"/v2/models/simple/versions/1": `{"name":"simple","versions":["1"],"platform":"popef","inputs":[{"name":"INPUT0","datatype":"INT32","shape":[-1,16]},{"name":"INPUT1","datatype":"INT32","shape":[-1,16]}],"outputs":[{"name":"OUTPUT0","datatype":"INT32","shape":[-1,16]},{"name":"OUTPUT1","datatype":"INT32","shape":[-1,16]}]}`,
		"/v2/models/simple/config":     `{"name":"simple","platform":"popef","backend":"popefgen","max_batch_size":8,"input":[{"name":"INPUT0","data_type":"TYPE_INT32","format":"FORMAT_NONE","dims":[16]},{"name":"INPUT1","data_type":"TYPE_INT32","format":"FORMAT_NONE","dims":[16]}],"output":[{"name":"OUTPUT0","data_type":"TYPE_INT32","dims":[16]},{"name":"OUTPUT1","data_type":"TYPE_INT32","dims":[16]}]}`,
	} {
		w := ask(h, "GET", path, "")
		require.Equal(t, 200, w.Code, path)
		require.Equal(t, want, w.Body.String(), path)
	}
}

func TestOpenAPI(t *testing.T) {
	h := served(t, Options{Repository: &shelf{}}, testmodel.Simple())
	w := ask(h, "GET", "/v2/openapi.json", "")
	require.Equal(t, 200, w.Code)
	var doc struct {
		OpenAPI    string
		Paths      map[string]map[string]struct{ Summary string }
		Components struct{ Schemas map[string]any }
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &doc))
	require.Equal(t, "3.1.0", doc.OpenAPI)
	require.NotEmpty(t, doc.Paths["/v2/models/simple/infer"]["post"].Summary)
	require.Contains(t, doc.Components.Schemas, "simple.request")
	for _, r := range calls() {
		path := strings.Join(r.path, "/")
		if path == "metrics" {
			continue // there are none here
		}
		require.NotEmpty(t, doc.Paths["/"+path][strings.ToLower(r.method)].Summary, path)
	}
	for _, ref := range strings.Split(w.Body.String(), `"$ref":"#/components/schemas/`)[1:] {
		require.Contains(t, doc.Components.Schemas, ref[:strings.IndexByte(ref, '"')])
	}
}
