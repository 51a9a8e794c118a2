package clients

import (
	"bytes"
	"compress/gzip"
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
