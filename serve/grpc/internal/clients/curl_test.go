package clients

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCurl asks over REST: in JSON, with binary tensors, by the raw body alone, and compressed.
func TestCurl(t *testing.T) {
	curl := need(t, "curl", "apt-get install curl")
	address, _ := start(t)
	dir := t.TempDir()
	// ask returns the status, the header and the body of an answer.
	ask := func(t *testing.T, path string, args ...string) (string, string, []byte) {
		head, body := filepath.Join(dir, "head"), filepath.Join(dir, "body")
		os.Remove(body)
		status := run(t, exec.Command(curl, append([]string{"-s", "-S", "-m", "20", "-D", head, "-o", body, "-w", "%{http_code}", "http://" + address + path}, args...)...))
		h, err := os.ReadFile(head)
		require.NoError(t, err)
		b, err := os.ReadFile(body)
		if !os.IsNotExist(err) {
			require.NoError(t, err)
		}
		return status, strings.ToLower(string(h)), b
	}
	file := func(t *testing.T, data []byte) string {
		path := filepath.Join(t.TempDir(), "request")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return "@" + path
	}

	t.Run("server and model", func(t *testing.T) {
		for _, path := range []string{"/v2/health/live", "/v2/health/ready", "/v2/models/simple/ready", "/v2/models/simple/versions/1/ready"} {
			status, _, body := ask(t, path)
			require.Equal(t, "200", status, "%s: %s", path, body)
		}
		for path, part := range map[string]string{
			"/v2": `"name":"triton"`, "/v2/models/simple": `"INPUT0"`, "/v2/models/simple/versions/1": `"INT32"`,
			"/v2/models/simple/config": `"max_batch_size":8`, "/v2/models/simple/stats": `"inference_count"`,
		} {
			status, _, body := ask(t, path)
			require.Equal(t, "200", status, "%s: %s", path, body)
			require.Contains(t, strings.ReplaceAll(string(body), " ", ""), part, path)
		}
		status, _, body := ask(t, "/v2/models/absent")
		require.Equal(t, "404", status)
		require.Contains(t, string(body), "Request for unknown model")
	})

	const samples = 2
	var a, b []int32
	for i := range samples * 16 {
		a, b = append(a, int32(3*i)), append(b, int32(7-i))
	}
	little := func(v []int32) []byte {
		data, err := binary.Append(nil, binary.LittleEndian, v)
		require.NoError(t, err)
		return data
	}
	var sums, differences []int32
	for i := range a {
		sums, differences = append(sums, a[i]+b[i]), append(differences, a[i]-b[i])
	}
	inputs := func(extra func(v []int32) string) string {
		input := func(name string, v []int32) string {
			return fmt.Sprintf(`{"name":%q,"datatype":"INT32","shape":[%d,16],%s}`, name, samples, extra(v))
		}
		return "[" + input("INPUT0", a) + "," + input("INPUT1", b) + "]"
	}
	list := func(v []int32) string { s, _ := json.Marshal(v); return `"data":` + string(s) }
	nested := func(v []int32) string {
		s, _ := json.Marshal([][]int32{v[:16], v[16:]})
		return `"data":` + string(s)
	}
	size := func(v []int32) string { return fmt.Sprintf(`"parameters":{"binary_data_size":%d}`, 4*len(v)) }
	wantJSON := func(t *testing.T, body []byte) {
		var answer struct {
			ModelName string `json:"model_name"`
			ID        string
			Outputs   []struct {
				Name, Datatype string
				Shape          []int
				Data           []int32
			}
		}
		require.NoError(t, json.Unmarshal(body, &answer), "%s", body)
		require.Equal(t, "simple", answer.ModelName)
		require.Equal(t, "q7", answer.ID)
		require.Len(t, answer.Outputs, 2)
		for i, want := range [][]int32{sums, differences} {
			o := answer.Outputs[i]
			require.Equal(t, fmt.Sprintf("OUTPUT%d INT32 [2 16]", i), fmt.Sprint(o.Name, " ", o.Datatype, " ", o.Shape))
			require.Equal(t, want, o.Data)
		}
	}
	const infer = "/v2/models/simple/infer"
	const lengthHeader = "inference-header-content-length"
	plain := `{"id":"q7","inputs":` + inputs(list) + `}`

	t.Run("JSON, flat", func(t *testing.T) {
		status, head, body := ask(t, infer, "-H", "Content-Type: application/json", "-d", plain)
		require.Equal(t, "200", status, "%s", body)
		require.Contains(t, head, "content-type: application/json")
		wantJSON(t, body)
	})
	t.Run("JSON, nested, of a version", func(t *testing.T) {
		status, _, body := ask(t, "/v2/models/simple/versions/1/infer", "-d", `{"id":"q7","inputs":`+inputs(nested)+`}`)
		require.Equal(t, "200", status, "%s", body)
		wantJSON(t, body)
	})
	t.Run("gzip both ways", func(t *testing.T) {
		// eight samples of long numbers, since a small answer is not compressed
		var long [8][16]int32
		for i := range long {
			for k := range long[i] {
				long[i][k] = int32(1_000_000_007 - 1_000_003*(16*i+k))
			}
		}
		data, err := json.Marshal(long)
		require.NoError(t, err)
		zero, err := json.Marshal([8][16]int32{})
		require.NoError(t, err)
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		fmt.Fprintf(w, `{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[8,16],"data":%s},{"name":"INPUT1","datatype":"INT32","shape":[8,16],"data":%s}]}`, data, zero)
		require.NoError(t, w.Close())
		status, head, body := ask(t, infer, "-H", "Content-Encoding: gzip", "--compressed", "--data-binary", file(t, z.Bytes()))
		require.Equal(t, "200", status, "%s", body)
		require.Contains(t, head, "content-encoding: ")
		flat := strings.NewReplacer("[[", "[", "]]", "]", "],[", ",").Replace(string(data))
		require.Equal(t, 2, strings.Count(string(body), flat), "INPUT0 is the sum and the difference: %s", body)
	})
	wantBinary := func(t *testing.T, head string, body []byte) {
		_, after, ok := strings.Cut(head, lengthHeader+": ")
		require.True(t, ok, "no %s in %s", lengthHeader, head)
		n, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(after, "\n", 2)[0]))
		require.NoError(t, err)
		require.True(t, json.Valid(body[:n]), "%s", body[:n])
		require.Contains(t, string(body[:n]), `"binary_data_size":128`)
		require.Equal(t, append(little(sums), little(differences)...), body[n:])
	}
	binaryHeader := `{"id":"q7","inputs":` + inputs(size) + `,"parameters":{"binary_data_output":true}}`
	binaryBody := append(append([]byte(binaryHeader), little(a)...), little(b)...)
	t.Run("binary", func(t *testing.T) {
		status, head, body := ask(t, infer, "-H", "Inference-Header-Content-Length: "+strconv.Itoa(len(binaryHeader)), "-H", "Content-Type: application/octet-stream", "--data-binary", file(t, binaryBody))
		require.Equal(t, "200", status, "%s", body)
		wantBinary(t, head, body)
	})
	t.Run("binary, chunked", func(t *testing.T) {
		status, head, body := ask(t, infer, "-H", "Inference-Header-Content-Length: "+strconv.Itoa(len(binaryHeader)), "-H", "Transfer-Encoding: chunked", "-H", "Expect:", "--data-binary", file(t, binaryBody))
		require.Equal(t, "200", status, "%s", body)
		wantBinary(t, head, body)
	})
	t.Run("raw body", func(t *testing.T) {
		want := little(a)[:3*4]
		status, head, body := ask(t, "/v2/models/identity_INT32/infer", "-H", "Inference-Header-Content-Length: 0", "-H", "Content-Type: application/octet-stream", "--data-binary", file(t, want))
		require.Equal(t, "200", status, "%s", body)
		_, after, ok := strings.Cut(head, lengthHeader+": ")
		require.True(t, ok, head)
		n, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(after, "\n", 2)[0]))
		require.NoError(t, err)
		require.Equal(t, want, body[n:])
	})
	t.Run("all types in JSON", func(t *testing.T) {
		for name, data := range map[string]string{
			"BOOL": "[true,false,true]", "UINT8": "[0,255,7]", "UINT16": "[0,65535,7]", "UINT32": "[0,4294967295,7]", "UINT64": "[0,18446744073709551615,7]",
			"INT8": "[-128,127,7]", "INT16": "[-32768,32767,7]", "INT32": "[-2147483648,2147483647,7]", "INT64": "[-9223372036854775808,9223372036854775807,7]",
			"FP32": "[0.1,-2.5,16777216]", "FP64": "[0.1,-2.5,9007199254740992]",
		} {
			status, _, body := ask(t, "/v2/models/identity_"+name+"/infer", "-d", fmt.Sprintf(`{"inputs":[{"name":"INPUT0","datatype":%q,"shape":[1,3],"data":%s}]}`, name, data))
			require.Equal(t, "200", status, "%s: %s", name, body)
			require.Contains(t, strings.ReplaceAll(string(body), " ", ""), `"data":`+data, name)
		}
	})
	t.Run("FP16 and BF16 as bytes", func(t *testing.T) {
		bf16, _ := startBF16(t)
		for name, server := range map[string]string{"FP16": address, "BF16": bf16} {
			halves, err := binary.Append(nil, binary.LittleEndian, []uint16{0x3c00, 0xbf80, 1, 0x7bff, 0x8000, 0x7f80}) // the last one is an infinity of BF16
			require.NoError(t, err)
			header := fmt.Sprintf(`{"inputs":[{"name":"INPUT0","datatype":%q,"shape":[2,3],"parameters":{"binary_data_size":12}}],"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}`, name)
			body := filepath.Join(t.TempDir(), "body")
			run(t, exec.Command(curl, "-s", "-S", "-f", "-m", "20", "-o", body, "-H", "Inference-Header-Content-Length: "+strconv.Itoa(len(header)), "--data-binary", file(t, append([]byte(header), halves...)), "http://"+server+"/v2/models/identity_"+name+"/infer"))
			answer, err := os.ReadFile(body)
			require.NoError(t, err)
			require.True(t, bytes.HasSuffix(answer, halves), "%s: %q", name, answer)
			require.Contains(t, string(answer), fmt.Sprintf(`"datatype":%q`, name))
		}
	})
	t.Run("classification", func(t *testing.T) {
		const scores = `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[2,3],"data":[0.25,2,1,-1,-2,0.5]}],"outputs":[{"name":"OUTPUT0","parameters":{"classification":2%s}}]}`
		status, _, body := ask(t, "/v2/models/scores/infer", "-d", fmt.Sprintf(scores, ""))
		require.Equal(t, "200", status, "%s", body)
		require.Contains(t, string(body), `"datatype":"BYTES","shape":[2,2],"data":["2.000000:1:dog","1.000000:2:bird","0.500000:2:bird","-1.000000:0:cat"]`)
		status, head, body := ask(t, "/v2/models/scores/infer", "-d", fmt.Sprintf(scores, `,"binary_data":true`))
		require.Equal(t, "200", status, "%s", body)
		require.Contains(t, head, lengthHeader)
		require.True(t, bytes.HasSuffix(body, []byte("\x0e\x00\x00\x002.000000:1:dog\x0f\x00\x00\x001.000000:2:bird\x0f\x00\x00\x000.500000:2:bird\x0f\x00\x00\x00-1.000000:0:cat")), "%q", body)
	})
	t.Run("deflate, parameters, and what a URL says beside", func(t *testing.T) {
		var z bytes.Buffer
		w := zlib.NewWriter(&z)
		fmt.Fprint(w, strings.Replace(plain, `{"id"`, `{"parameters":{"priority":1,"timeout":20000000,"mine":"x","half":0.5,"on":true},"id"`, 1))
		require.NoError(t, w.Close())
		status, _, body := ask(t, infer+"?test_1=1&test_2=2", "-H", "Content-Encoding: deflate", "-H", "Test: 1", "--data-binary", file(t, z.Bytes()))
		require.Equal(t, "200", status, "%s", body)
		wantJSON(t, body)
	})
	t.Run("models loaded and unloaded", func(t *testing.T) {
		index := func(body string) string {
			status, _, text := ask(t, "/v2/repository/index", "-d", body)
			require.Equal(t, "200", status, "%s", text)
			return string(text)
		}
		require.Contains(t, index(""), `{"name":"identity_INT8","version":"1","state":"READY","reason":""}`)
		require.Equal(t, 14, strings.Count(index("{}"), `"name":`))
		status, _, body := ask(t, "/v2/repository/models/identity_INT8/unload", "-d", `{"parameters":{"unload_dependents":false}}`)
		require.Equal(t, "200", status, "%s", body)
		status, _, _ = ask(t, "/v2/models/identity_INT8/ready")
		require.Equal(t, "404", status)
		require.NotContains(t, index(`{"ready":true}`), "identity_INT8")
		for path, refused := range map[string][2]string{
			`identity_INT8/load {"parameters":{"config":"{}"}}`:              {"501", "failed to load 'identity_INT8': parameter 'config'"},
			`identity_INT8/load {"parameters":{"file:1/model.onnx":"AAAA"}}`: {"501", "failed to load 'identity_INT8': parameter 'file:1/model.onnx'"},
			`wrong_model_name/load {}`:                                       {"404", "failed to load 'wrong_model_name'"},
			`wrong_model_name/unload {}`:                                     {"404", "failed to unload 'wrong_model_name'"},
		} {
			path, body, _ := strings.Cut(path, " ")
			status, _, text := ask(t, "/v2/repository/models/"+path, "-d", body)
			require.Equal(t, refused[0], status, "%s: %s", path, text)
			require.Contains(t, string(text), refused[1])
		}
		status, _, body = ask(t, "/v2/repository/models/identity_INT8/load", "-X", "POST")
		require.Equal(t, "200", status, "%s", body)
		status, _, _ = ask(t, "/v2/models/identity_INT8/ready")
		require.Equal(t, "200", status)
	})
	t.Run("extensions that there are not", func(t *testing.T) {
		for _, path := range []string{"/v2/systemsharedmemory/status", "/v2/cudasharedmemory/status", "/v2/trace/setting", "/v2/logging", "/v2/models/simple/generate"} {
			status, _, body := ask(t, path)
			require.Equal(t, "501", status, "%s: %s", path, body)
			require.Contains(t, string(body), `"error":"this server`)
		}
	})
	t.Run("errors", func(t *testing.T) {
		for _, c := range []struct{ name, path, body, status, part string }{
			{"unknown model", "/v2/models/absent/infer", plain, "404", "Request for unknown model"},
			{"shape", infer, strings.Replace(plain, "[2,16]", "[2,17]", 1), "400", "unexpected shape for input 'INPUT0' for model 'simple'. Expected [-1,16]"},
			{"type", infer, strings.Replace(plain, "INT32", "FP32", 1), "400", "inference input 'INPUT0' data-type is 'FP32', but model 'simple' expects 'INT32'"},
			{"input", infer, strings.Replace(plain, "INPUT0", "INPUT5", 1), "400", "unexpected inference input 'INPUT5' for model 'simple'"},
			{"no JSON", infer, "{", "400", ""},
		} {
			status, _, body := ask(t, c.path, "-d", c.body)
			require.Equal(t, c.status, status, "%s: %s", c.name, body)
			var answer struct{ Error string }
			require.NoError(t, json.Unmarshal(body, &answer), "%s: %s", c.name, body)
			require.NotEmpty(t, answer.Error, c.name)
			require.Contains(t, answer.Error, c.part, c.name)
		}
	})
}
