package main

import (
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/popefgen/popefgen/internal/serving"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/serve/grpc/internal/inference"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/internal/tlstest"
)

// TestOptions starts the command with authorisation, a log and a limit of connections: who has a certificate of the name
// or a token is answered, and one request of two is in the log.
func TestOptions(t *testing.T) {
	dir := t.TempDir()
	authority := tlstest.New(t)
	certificate, key := authority.Write(dir, "server", time.Hour)
	signs := tlstest.Put(t, dir, "clients.crt", authority.PEM)
	const token = "token-of-20-bytes-xx"
	write(t, filepath.Join(dir, "tokens"), []byte(token+" infer digits\n"))
	write(t, filepath.Join(dir, "models", "digits.popef"), compiled(t, "digits", false))
	conf := filepath.Join(dir, "popefgen.yaml")
	write(t, conf, []byte(`serve:
  access-log: 2
  connections: 1
  streams: 3
  message: 100000
  triton-metrics: true
  tls: {certificate: `+filepath.Base(certificate)+`, key: `+filepath.Base(key)+`, client-cas: `+filepath.Base(signs)+`, clients-optional: true}
  auth:
    tokens: tokens
    certificates:
      worker: {calls: [infer, statistics], models: [digits]}
      other: {calls: [infer], models: [words]}
  models: [{path: models}]
`))
	p := listens(t, "--config", conf)
	server := "https://" + strings.TrimPrefix(p.http, "http://")
	post := func(name, token string) int {
		given := &tls.Config{RootCAs: authority.Pool()}
		if name != "" {
			given.Certificates = []tls.Certificate{authority.Pair(name, time.Hour)}
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: given}}
		defer client.CloseIdleConnections() // there is one place
		r, err := http.NewRequest(http.MethodPost, server+"/v2/models/digits/infer", strings.NewReader(image))
		require.NoError(t, err)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		got, err := client.Do(r)
		require.NoError(t, err, p.log())
		got.Body.Close()
		return got.StatusCode
	}
	require.Equal(t, http.StatusUnauthorized, post("", ""))
	require.Equal(t, http.StatusForbidden, post("stranger", ""))
	require.Equal(t, http.StatusForbidden, post("other", ""))
	require.Equal(t, http.StatusOK, post("worker", ""))
	require.Equal(t, http.StatusOK, post("", token))
	require.Equal(t, http.StatusOK, post("stranger", token))
	require.Equal(t, http.StatusOK, post("worker", ""))
	p.stop(t)
	require.Equal(t, 2, strings.Count(p.log(), "model=digits version=1 samples="), p.log())
	require.NotContains(t, p.log(), token)
}

// TestConnections fills the one place that there is: the next client waits until it is free.
func TestConnections(t *testing.T) {
	p := start(t, "--connections", "1", "--batch", "1", filepath.Join(examples, "digits", "digits.onnx"))
	http.DefaultClient.CloseIdleConnections()
	first, err := net.Dial("tcp", strings.TrimPrefix(p.http, "http://"))
	require.NoError(t, err)
	defer first.Close()
	_, err = first.Write([]byte("GET /v2 HTTP/1.1\r\n")) // under way
	require.NoError(t, err)
	time.Sleep(50 * time.Millisecond) // accepted
	client := &http.Client{Timeout: 200 * time.Millisecond}
	_, err = client.Get(p.http + "/v2")
	require.Error(t, err)
	first.Close()
	client.Timeout = 10 * time.Second
	r, err := client.Get(p.http + "/v2")
	require.NoError(t, err)
	r.Body.Close()
	p.stop(t)
}

// TestFlags has what stands in flags and the environment, several values among it, arrive in the configuration.
func TestFlags(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "m.onnx", []byte("m"))
	for _, f := range []string{"c", "k", "a", "t"} {
		write(t, f, nil)
	}
	for name, value := range map[string]string{
		"DIM": "past=0,16;all=past+1", "SIZE": "batch=1,seq=16;batch=4,seq=8", "CERTIFICATES": "spiffe://a,b;worker", "TLS_CERTIFICATE": "c", "TLS_KEY": "k",
		"ACCESS_LOG": "7", "MESSAGE": "9000", "TRITON_METRICS": "true",
	} {
		t.Setenv("POPEFGEN_SERVE_"+name, value)
	}
	var conf *serving.Config
	app := &cli.App{Flags: flags(), SliceFlagSeparator: separator, Action: func(c *cli.Context) (err error) { conf, err = configOf(c); return err }}
	require.NoError(t, app.Run([]string{"popefgen-serve", "--tls-client-cas", "a", "--tls-clients-optional", "--tokens", "t", "--pad", "seq=x:0,mask:-1", "--streams", "5", "--connections", "6",
		"--computing", "3", "--access-log", "8", "m.onnx"}))
	require.Equal(t, "0,16", conf.Dim["past"].Text)
	require.Equal(t, "past+1", conf.Dim["all"].Text)
	require.Equal(t, []map[string]int64{{"batch": 1, "seq": 16}, {"batch": 4, "seq": 8}}, conf.Size)
	require.Equal(t, map[string]serving.Rule{"spiffe://a,b": {}, "worker": {}}, conf.Auth.Certificates)
	require.Equal(t, "t", conf.Auth.Tokens)
	require.Equal(t, serving.TLS{Certificate: "c", Key: "k", ClientCAs: "a", ClientsOptional: true}, *conf.TLS)
	require.True(t, conf.TritonMetrics)
	require.Equal(t, []int64{8, 6, 5, 9000, 3}, []int64{int64(conf.AccessLog), int64(*conf.Connections), int64(*conf.Streams), *conf.Message, int64(*conf.Limits.Computing)})
	compile := compileOf(&conf.Options)
	require.Equal(t, []string{"all=past+1", "past=0,16"}, compile.Dims)
	require.Equal(t, []string{"batch=1,seq=16", "batch=4,seq=8"}, compile.Sizes)
	require.Equal(t, []string{"seq=mask:-1,x:0"}, compile.Pads)

	// Every flag has its variable, and docs/serving.md or the schema its name.
	schema, err := os.ReadFile(filepath.Join(filepath.Dir(examples), "docs", "popefgen.schema.json"))
	require.NoError(t, err)
	doc, err := os.ReadFile(filepath.Join(filepath.Dir(examples), "docs", "serving.md"))
	require.NoError(t, err)
	for _, f := range flags() {
		name := f.Names()[0]
		require.Len(t, f.(cli.DocGenerationFlag).GetEnvVars(), 1, name)
		require.True(t, strings.Contains(string(schema), `"`+name+`"`) || strings.Contains(string(doc), "--"+name), name)
	}
}

// TestLargerLater has a server that began without models take large messages of gRPC, for a model that came later.
func TestLargerLater(t *testing.T) {
	r, err := compile.Compile(testmodel.SimpleONNX(), compile.Options{Options: onnx.Options{Batch: 4096}})
	require.NoError(t, err)
	model, err := r.Bytes()
	require.NoError(t, err)
	dir := t.TempDir()
	p := start(t, "--control", "watch", "--poll", "10ms", dir)
	write(t, filepath.Join(dir, "simple.popef"), model)
	require.Eventually(t, func() bool { return p.status("/v2/models/simple/ready") == http.StatusOK }, 10*time.Second, time.Millisecond, "%s", p.log())
	conn, err := grpc.NewClient(p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	one := func(name string) *inference.ModelInferRequest_InferInputTensor {
		return &inference.ModelInferRequest_InferInputTensor{Name: name, Datatype: "INT32", Shape: []int64{4096, testmodel.Elements}}
	}
	data := make([]byte, 4096*testmodel.Elements*4)
	request := &inference.ModelInferRequest{
		ModelName: "simple", Inputs: []*inference.ModelInferRequest_InferInputTensor{one("INPUT0"), one("INPUT1")}, RawInputContents: [][]byte{data, data},
	}
	answer := &inference.ModelInferResponse{}
	require.NoError(t, conn.Invoke(t.Context(), "/inference.GRPCInferenceService/ModelInfer", request, answer))
	require.Len(t, answer.RawOutputContents, 2)
	p.stop(t)
}
