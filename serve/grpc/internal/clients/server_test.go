package clients

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	_ "github.com/popefgen/popefgen/internal/serving"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/serve"
	_ "github.com/popefgen/popefgen/serve/dynamic"
	grpcserve "github.com/popefgen/popefgen/serve/grpc"
	_ "github.com/popefgen/popefgen/serve/grpc/metrics"
	_ "github.com/popefgen/popefgen/serve/internal/repository"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

// folder has the command that is built once; "" if no test wanted it.
var folder string

func TestMain(m *testing.M) {
	code := m.Run()
	if folder != "" {
		os.RemoveAll(folder)
	}
	os.Exit(code)
}

// command builds popefgen-serve and returns its path. The go command takes a test for run that reads the same files and links the same packages: that is why
// the sources are read here, and why what they import is imported.
var command = sync.OnceValues(func() (string, error) {
	const sources = "../../cmd/popefgen-serve"
	all, err := filepath.Glob(filepath.Join(sources, "*.go"))
	if err != nil {
		return "", err
	}
	for _, name := range all {
		if _, err := os.ReadFile(name); err != nil {
			return "", err
		}
	}
	if folder, err = os.MkdirTemp("", "popefgen-serve"); err != nil {
		return "", err
	}
	path := filepath.Join(folder, "popefgen-serve")
	if out, err := exec.Command("go", "build", "-o", path, sources).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// elements are the element types of ONNX whose models files have with the same type. PopEF knows no BF16: see startBF16.
var elements = map[oip.DataType]onnx.ElemType{
	oip.Bool: onnx.Bool, oip.Uint8: onnx.Uint8, oip.Uint16: onnx.Uint16, oip.Uint32: onnx.Uint32, oip.Uint64: onnx.Uint64, oip.Int8: onnx.Int8, oip.Int16: onnx.Int16,
	oip.Int32: onnx.Int32, oip.Int64: onnx.Int64, oip.FP16: onnx.Float16, oip.FP32: onnx.Float, oip.FP64: onnx.Double,
}

// identity is a model of one type that gives back INPUT0, [-1,3], as OUTPUT0.
func identity(e onnx.ElemType) *onnx.Model {
	value := func(name string) onnx.ValueInfo {
		return onnx.ValueInfo{Name: name, Elem: e, HasShape: true, Dims: []onnx.Dim{{Symbol: "batch"}, {Known: true, Value: 3}}}
	}
	return &onnx.Model{IRVersion: 8, Opsets: []onnx.Opset{{Version: 17}}, Graph: &onnx.Graph{
		Name: "identity", Inputs: []onnx.ValueInfo{value("INPUT0")}, Outputs: []onnx.ValueInfo{value("OUTPUT0")},
		Nodes: []*onnx.Node{{OpType: "Identity", Inputs: []string{"INPUT0"}, Outputs: []string{"OUTPUT0"}}},
	}}
}

// start runs popefgen-serve, called triton, of .onnx files that it compiles for 1 to 8 samples: simple, a model of each data type that gives back what it gets,
// and scores, of FP32, whose classes have labels. Its clients may load and unload models. It returns the addresses of REST and gRPC.
func start(t *testing.T) (rest, grpc string) {
	path, err := command()
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name string, data []byte) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	model := func(name string, m *onnx.Model) {
		data, err := onnx.Encode(m)
		require.NoError(t, err)
		write(name, data)
	}
	model("models/simple/1/model.onnx", testmodel.SimpleONNX())
	for d, e := range elements {
		model("models/identity_"+d.String()+".onnx", identity(e))
	}
	model("scores.onnx", identity(onnx.Float))
	write("classes.txt", []byte("cat\ndog\nbird\n"))
	write("popefgen.yaml", []byte(`serve:
  http: 127.0.0.1:0
  grpc: 127.0.0.1:0
  server-name: triton
  repository: true
  load-model: ["*"]
  batch: 1..8:+1
  models:
    - path: models
    - {path: scores.onnx, labels: {OUTPUT0: classes.txt}}
`))
	cmd := exec.Command(path, "--config", filepath.Join(dir, "popefgen.yaml"))
	out, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var mu sync.Mutex
	var log strings.Builder
	listening := make(chan map[string]string, 1)
	ended := make(chan error, 1)
	address := regexp.MustCompile(`msg=listening protocol=(\w+) address=(\S+)`)
	go func() {
		at := map[string]string{}
		s := bufio.NewScanner(out)
		for s.Scan() {
			mu.Lock()
			log.WriteString(s.Text() + "\n")
			mu.Unlock()
			if m := address.FindStringSubmatch(s.Text()); m != nil {
				if at[m[1]] = m[2]; len(at) == 2 {
					listening <- at
				}
			}
		}
		ended <- cmd.Wait()
	}()
	said := func() string { mu.Lock(); defer mu.Unlock(); return log.String() }
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			require.NoError(t, err, "the server ends well:\n%s", said())
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
			t.Errorf("the server does not end:\n%s", said())
		}
	})
	select {
	case at := <-listening:
		return at["http"], at["grpc"]
	case err := <-ended:
		ended <- err
		t.Fatalf("the server does not listen, %v:\n%s", err, said())
	case <-time.After(time.Minute):
		t.Fatalf("the server does not listen:\n%s", said())
	}
	return "", ""
}

// startBF16 starts a server in this process of a model of BF16, which no file has but the protocol does.
func startBF16(t *testing.T) (rest, grpc string) {
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		return l
	}
	h, g := listen(), listen()
	srv, err := serve.New(serve.WithModel(testmodel.Identity(oip.BF16, testmodel.Samples, 3)), serve.WithHTTPListener(h), serve.WithDrain(0, 10*time.Second))
	require.NoError(t, err)
	require.NoError(t, grpcserve.RegisterListener(srv, g))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended // a client that was killed is cut off
	})
	require.Eventually(t, func() bool { return srv.Core().Ready() == nil }, 20*time.Second, time.Millisecond)
	return h.Addr().String(), g.Addr().String()
}
