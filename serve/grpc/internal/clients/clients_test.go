// Package clients lets clients that this project did not write ask its server: those that protoc generates for Python, that
// proto-loader reads from inference.proto in Node, grpcurl, and curl. A client that is not installed is skipped in a line that names it; make
// serve-clients installs those that are no packages of the system into build/.clients.
package clients

import (
	"bytes"
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

const root = "../../../.." // of the main module

// need returns the path of a program, or skips the test and says what would install it.
func need(t *testing.T, program, install string) string {
	t.Helper()
	if path := filepath.Join(root, "build", ".clients", program); executable(path) {
		path, err := filepath.Abs(path)
		require.NoError(t, err)
		return path
	}
	path, err := exec.LookPath(program)
	if err != nil {
		skip(t, "no %s here: %s", program, install)
	}
	return path
}

// skip leaves a test out for want of a client, which fails where all have to be there.
func skip(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("POPEFGEN_CLIENTS") == "all" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// run runs a client and wants it to end well. It returns what it printed.
func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, tail(out.String()), talk.String())
	}
	return out.String()
}

// tail returns the last lines of what a client printed, which say how far it came.
func tail(s string) string {
	lines := strings.SplitAfter(s, "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "")
}

// python returns a Python that has the modules, which Debian installs for its own, not for one that comes first on PATH.
func python(t *testing.T) string {
	var why []byte
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		out, err := exec.Command(name, "-c", "import grpc, google.protobuf, numpy").CombinedOutput()
		if err == nil {
			return name
		}
		why = out
	}
	skip(t, "no Python with grpc, google.protobuf and numpy here: apt-get install python3-grpcio python3-protobuf python3-numpy (%s)", lastLine(why))
	return ""
}

func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

// TestPython generates a client from inference.proto and makes every call with it.
func TestPython(t *testing.T) {
	interpreter := python(t)
	protoc := need(t, "protoc", "apt-get install protobuf-compiler")
	plugin := need(t, "grpc_python_plugin", "apt-get install protobuf-compiler-grpc")
	_, address := start(t)
	_, bf16 := startBF16(t)
	stubs := t.TempDir()
	run(t, exec.Command(protoc, "-I", "../..", "--python_out="+stubs, "--grpc_out="+stubs, "--plugin=protoc-gen-grpc="+plugin, "inference.proto"))
	out := run(t, exec.Command(interpreter, "testdata/client.py", stubs, address, bf16))
	require.Greater(t, strings.Count(out, "ok "), 100, "so many things are as the client expects")
}

// TestNode makes every call with grpc-js, which reads inference.proto itself.
func TestNode(t *testing.T) {
	node := need(t, "node", "apt-get install nodejs")
	modules, err := filepath.Abs(filepath.Join(root, "build", ".clients", "node_modules"))
	require.NoError(t, err)
	env := append(os.Environ(), "NODE_PATH="+modules+string(os.PathListSeparator)+os.Getenv("NODE_PATH"))
	probe := exec.Command(node, "-e", `require("@grpc/grpc-js"); require("@grpc/proto-loader")`)
	probe.Env = env
	if probe.Run() != nil {
		skip(t, "no @grpc/grpc-js and @grpc/proto-loader here: make serve-clients installs them")
	}
	_, address := start(t)
	_, bf16 := startBF16(t)
	cmd := exec.Command(node, "testdata/client.js", "../../inference.proto", address, bf16)
	cmd.Env = env
	out := run(t, cmd)
	require.Greater(t, strings.Count(out, "ok "), 60, "so many things are as the client expects")
}

// TestGrpcurl finds the services by reflection, describes them and calls them.
func TestGrpcurl(t *testing.T) {
	grpcurl := need(t, "grpcurl", "make serve-clients installs it")
	_, address := start(t)
	call := func(t *testing.T, method, body string) string {
		return run(t, exec.Command(grpcurl, "-plaintext", "-emit-defaults", "-d", body, address, method))
	}
	const service = "inference.GRPCInferenceService"
	services := run(t, exec.Command(grpcurl, "-plaintext", address, "list"))
	require.Contains(t, services, service)
	require.Contains(t, services, "grpc.health.v1.Health")
	require.Contains(t, run(t, exec.Command(grpcurl, "-plaintext", address, "describe", service)), "rpc ModelStreamInfer ( stream .inference.ModelInferRequest )")
	require.Contains(t, call(t, "grpc.health.v1.Health/Check", `{}`), "SERVING")
	require.Contains(t, call(t, service+"/ServerLive", `{}`), `"live": true`)
	require.Contains(t, call(t, service+"/ServerReady", `{}`), `"ready": true`)
	require.Contains(t, call(t, service+"/ServerMetadata", `{}`), `"name": "triton"`)
	require.Contains(t, call(t, service+"/ModelReady", `{"name":"simple"}`), `"ready": true`)
	require.Contains(t, call(t, service+"/ModelMetadata", `{"name":"simple"}`), `"INT32"`)
	require.Contains(t, call(t, service+"/ModelConfig", `{"name":"simple"}`), `"maxBatchSize": 8`)
	require.Contains(t, call(t, service+"/RepositoryIndex", `{}`), `"READY"`)

	var contents, raw [16]string
	var a, b []byte
	for i := range contents {
		contents[i], raw[i] = strconv.Itoa(2*i), strconv.Itoa(i+5)
		a = binary.LittleEndian.AppendUint32(a, uint32(2*i))
		b = binary.LittleEndian.AppendUint32(b, uint32(i+5))
	}
	list := func(v [16]string) string { return "[" + strings.Join(v[:], ",") + "]" }
	input := func(name, contents string) string {
		if contents != "" {
			contents = `,"contents":{"int_contents":` + contents + `}`
		}
		return fmt.Sprintf(`{"name":%q,"datatype":"INT32","shape":[1,16]%s}`, name, contents)
	}
	encode := func(b []byte) string { s, _ := json.Marshal(b); return string(s) }
	for name, body := range map[string]string{
		"contents": fmt.Sprintf(`{"model_name":"simple","id":"7","inputs":[%s,%s]}`, input("INPUT0", list(contents)), input("INPUT1", list(raw))),
		"raw":      fmt.Sprintf(`{"model_name":"simple","id":"7","inputs":[%s,%s],"raw_input_contents":[%s,%s]}`, input("INPUT0", ""), input("INPUT1", ""), encode(a), encode(b)),
	} {
		t.Run(name, func(t *testing.T) {
			for _, method := range []string{"ModelInfer", "ModelStreamInfer"} {
				type response struct {
					ID                string
					RawOutputContents [][]byte
					Outputs           []struct{ Contents struct{ IntContents []int32 } }
				}
				var streamed struct {
					ErrorMessage  string
					InferResponse response
				}
				var answer response
				out := call(t, service+"/"+method, body)
				if method == "ModelStreamInfer" {
					require.NoError(t, json.Unmarshal([]byte(out), &streamed))
					require.Empty(t, streamed.ErrorMessage)
					answer = streamed.InferResponse
				} else {
					require.NoError(t, json.Unmarshal([]byte(out), &answer))
				}
				require.Equal(t, "7", answer.ID)
				require.Len(t, answer.Outputs, 2)
				for i, o := range answer.Outputs {
					got := o.Contents.IntContents
					if len(answer.RawOutputContents) > 0 {
						got = ints(answer.RawOutputContents[i])
					}
					require.Len(t, got, 16)
					for k, v := range got {
						require.EqualValues(t, []int{3*k + 5, k - 5}[i], v, method)
					}
				}
			}
		})
	}

	scores := fmt.Sprintf(`{"model_name":"scores","inputs":[%s],"outputs":[{"name":"OUTPUT0","parameters":{"classification":{"int64_param":2}}}]}`,
		`{"name":"INPUT0","datatype":"FP32","shape":[1,3],"contents":{"fp32_contents":[0.25,2,1]}}`)
	var classes struct{ RawOutputContents [][]byte }
	require.NoError(t, json.Unmarshal([]byte(call(t, service+"/ModelInfer", scores)), &classes))
	require.Equal(t, "\x0e\x00\x00\x002.000000:1:dog\x0f\x00\x00\x001.000000:2:bird", string(classes.RawOutputContents[0]))

	refused := func(t *testing.T, method, body string, parts ...string) {
		out, err := exec.Command(grpcurl, "-plaintext", "-d", body, address, service+"/"+method).CombinedOutput()
		require.Error(t, err)
		for _, part := range parts {
			require.Contains(t, string(out), part)
		}
	}
	refused(t, "ModelMetadata", `{"name":"absent"}`, "NotFound", "Request for unknown model")
	call(t, service+"/RepositoryModelUnload", `{"model_name":"identity_INT8"}`)
	require.Contains(t, call(t, service+"/ModelReady", `{"name":"identity_INT8"}`), `"ready": false`)
	require.NotContains(t, call(t, service+"/RepositoryIndex", `{"ready":true}`), "identity_INT8")
	refused(t, "RepositoryModelLoad", `{"model_name":"identity_INT8","parameters":{"config":{"string_param":"{}"}}}`, "Unimplemented", "failed to load 'identity_INT8': parameter 'config'")
	refused(t, "RepositoryModelLoad", `{"model_name":"wrong_model_name"}`, "NotFound", "failed to load 'wrong_model_name'")
	call(t, service+"/RepositoryModelLoad", `{"model_name":"identity_INT8"}`)
	require.Contains(t, call(t, service+"/ModelReady", `{"name":"identity_INT8"}`), `"ready": true`)
	require.Contains(t, call(t, service+"/ModelStatistics", `{"name":"simple"}`), `"inferenceCount"`)
}

func ints(b []byte) []int32 {
	v := make([]int32, len(b)/4)
	for i := range v {
		v[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}
