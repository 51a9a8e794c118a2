package serving

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/access"
)

// schema is what editors know of a key.
type schema struct {
	Ref         string `json:"$ref"`
	Description string
	Properties  map[string]schema
	Items       *schema
}

// TestSchema compares the keys that editors offer with those that are read.
func TestSchema(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "popefgen.schema.json"))
	require.NoError(t, err)
	var all struct {
		Defs       map[string]schema `json:"$defs"`
		Properties map[string]schema
	}
	require.NoError(t, json.Unmarshal(data, &all))
	var compare func(at string, typ reflect.Type, s schema)
	compare = func(at string, typ reflect.Type, s schema) {
		if s.Ref != "" {
			s = all.Defs[strings.TrimPrefix(s.Ref, "#/$defs/")]
		}
		if s.Items != nil && typ.Kind() == reflect.Slice {
			s, typ = *s.Items, typ.Elem()
		}
		for typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || len(s.Properties) == 0 {
			return
		}
		fields := map[string]reflect.Type{}
		var gather func(reflect.Type)
		gather = func(typ reflect.Type) {
			for i := range typ.NumField() {
				f := typ.Field(i)
				if name, inline, _ := strings.Cut(f.Tag.Get("yaml"), ","); inline != "" {
					gather(f.Type)
				} else {
					fields[name] = f.Type
				}
			}
		}
		gather(typ)
		require.Equal(t, slices.Sorted(maps.Keys(s.Properties)), slices.Sorted(maps.Keys(fields)), at)
		for name, p := range s.Properties {
			require.NotEmpty(t, p.Description, at+"."+name)
			compare(at+"."+name, fields[name], p)
		}
	}
	compare("serve", reflect.TypeFor[Config](), all.Properties["serve"])
}

// TestParse reads a file with everything in it, and those that are mistaken in their form.
func TestParse(t *testing.T) {
	c, err := Parse(filepath.Join("conf", "popefgen.yaml"), []byte(`
models: [{model: a.onnx, output: a}]
serve:
  http: ":1"
  grpc: ""
  control: watch
  poll: 250ms
  replicas: 2
  batch: [1, 4]
  limits: {waiting: -1, timeout: 3s}
  tls: {certificate: c.pem, key: /k.pem}
  auth:
    tokens: t
    certificates:
      spiffe://here/ns/a:
      worker.local: {calls: [infer, health], models: [m]}
  access-log: 100
  connections: 10
  streams: 11
  message: 12
  dim: {seq: 8}
  pad: {seq: {x: 0, mask: "-inf"}}
  models:
    - path: m
      versions: all
      linger: 2ms
      dim: {seq: "16..64:*2"}
      labels: {y: names.txt}
      limits: {computing: 3}
    - path: n
      size: [{batch: 1, seq: 16}, {batch: 4, seq: 8}]
`))
	require.NoError(t, err)
	require.Equal(t, ":1", *c.HTTP)
	require.Empty(t, *c.GRPC)
	require.Equal(t, []string{filepath.Join("conf", "c.pem"), "/k.pem", filepath.Join("conf", "t"), filepath.Join("conf", "m"), filepath.Join("conf", "names.txt")},
		[]string{c.TLS.Certificate, c.TLS.Key, c.Auth.Tokens, c.Models[0].Path, c.Models[0].Labels["y"]})
	o := c.Of(&c.Models[0])
	require.Equal(t, "all", o.Versions)
	require.Equal(t, 2, *o.Replicas)
	require.Equal(t, "1,4", o.Batch.Text)
	require.Equal(t, "16..64:*2", o.Dim["seq"].Text)
	require.Equal(t, 3, *o.Limits.Computing)
	require.Equal(t, -1, *o.Limits.Waiting)
	require.Nil(t, o.Threads)
	require.Empty(t, o.Size)
	require.EqualValues(t, 0, o.Pad["seq"]["x"])
	o = c.Of(&c.Models[1]) // members that are named one by one stand for themselves
	require.Equal(t, []map[string]int64{{"batch": 1, "seq": 16}, {"batch": 4, "seq": 8}}, o.Size)
	require.Nil(t, o.Batch)
	require.Nil(t, o.Dim)
	require.Equal(t, "-inf", o.Pad["seq"]["mask"])
	require.Equal(t, 2, *o.Replicas)
	require.Equal(t, []int64{100, 10, 11, 12}, []int64{int64(c.AccessLog), int64(*c.Connections), int64(*c.Streams), *c.Message})
	rules, err := c.Auth.Rules()
	require.NoError(t, err)
	require.Equal(t, map[string]access.Rule{
		"spiffe://here/ns/a": {},
		"worker.local":       {APIs: []access.API{access.Infer, access.Health}, Models: []string{"m"}},
	}, rules)
	c.Options.Size = o.Size
	require.Empty(t, c.Of(&c.Models[0]).Size, "it has dim of its own")

	none, err := Parse("p.yaml", []byte("models: []"))
	require.NoError(t, err)
	require.Nil(t, none)
	for text, want := range map[string]string{
		"serve: {htp: x}":            "htp",
		"serve: {poll: soon}":        "want a time such as 250ms or 30s",
		"serve: {replicas: many}":    "want a whole number",
		"serve: {models: {path: x}}": "want a list",
	} {
		_, err := Parse("p.yaml", []byte(text))
		require.ErrorContains(t, err, "p.yaml: ", text)
		require.ErrorContains(t, err, want, text)
	}
}

// TestCheck names every mistake of a configuration, not just the first.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	require.NoError(t, os.WriteFile(there, nil, 0o600))
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"nothing wrong": {"http: ':1'\n  models: [{path: there}]", nil},
		"nothing":       {"control: none", []string{"http: neither http nor grpc", "models: there is nothing to serve"}},
		"everything": {`http: nowhere
  grpc: ":99999"
  control: sometimes
  poll: -1s
  drain-delay: -1s
  drain-limit: -2s
  tls: {certificate: missing.pem}
  auth: {tokens: missing.txt, certificates: {ann: {calls: [infer, fly]}}}
  versions: some
  replicas: -1
  threads: -1
  linger: -1ms
  batch: 0
  dim: {n: "4..2:*2"}
  limits: {computing: -1, timeout: 0s}
  access-log: -1
  connections: 0
  streams: -2
  message: 0
  size: [{n: 1}, {n: -1}]
  pad: {n: {x: [0]}}
  models:
    - {path: missing.popef}
    - {path: ., name: x}
    - {path: there, replicas: -2, labels: {y: missing.labels}}
    - {name: y}`, []string{
			`http: found "nowhere", want an address`, `grpc: found ":99999"`, `control: found "sometimes", want none, watch, explicit`, "poll: found -1s", "drain-delay: found -1s", "drain-limit: found -2s",
			"access-log: found -1", "connections: found 0, want 1 to", "streams: found -2", "message: found 0",
			"tls: want both certificate and key", "tls.certificate: open", "auth.tokens: open", "auth.certificates: want tls.client-cas", "auth.certificates.ann.calls: found [\"infer\" \"fly\"]", `versions: found "some"`, "replicas: found -1", "threads: found -1", "linger: found -1ms", "batch: --batch 0",
			`dim.n: found "4..2:*2"`, "size[1].n: found -1", "pad: n: x: found [0], want a number", "limits.computing: found -1", "limits.timeout: found 0s", "models[0].path: stat", "models[1].name:", "models[2].labels.y: open", "models[2].replicas: found -2", "models[3].path: want a file or a folder",
		}},
		"nobody loads": {"http: ':1'\n  control: explicit\n  models: [{path: there}]", []string{"control: explicit has clients load models, and none can: want an address of admin, or repository"}},
		"all load":     {"http: ':1'\n  repository: true\n  load-model: [there]\n  models: [{path: there}]", nil},
		"who loads":    {"http: ':1'\n  repository: true\n  load-model: [there]\n  control: watch\n  models: [{path: there}]", []string{"repository: has clients load models, and control is watch, want explicit", "load-model: names what"}},
		"none loads":   {"http: ':1'\n  load-model: [there]\n  models: [{path: there}]", []string{"load-model: names what"}},
		"nobody may":   {"http: ':1'\n  auth: {}\n  models: [{path: there}]", []string{"auth: want a file of tokens, or names"}},
		"one address":  {"http: ':7'\n  grpc: ':7'\n  models: [{path: there}]", []string{"grpc: :7 is the address of http too"}},
	} {
		c2, err := Parse(filepath.Join(dir, "popefgen.yaml"), []byte("serve:\n  "+c.text))
		require.NoError(t, err, name)
		found := c2.Check()
		require.Len(t, found, len(c.want), "%s: %v", name, errors.Join(found...))
		for i, want := range c.want {
			require.ErrorContains(t, found[i], want, name)
		}
	}
}

// FuzzParse reads any text.
func FuzzParse(f *testing.F) {
	f.Add([]byte("serve: {http: ':1', models: [{path: a, batch: [1,2]}]}"))
	f.Add([]byte("serve: {limits: {timeout: 3s}, tls: {}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("p.yaml", data)
		if err != nil {
			require.Contains(t, err.Error(), "p.yaml: ")
			return
		}
		if c != nil {
			for i := range c.Models {
				c.Of(&c.Models[i])
			}
		}
	})
}

// TestExample reads the configuration that docs/serving.md shows: nothing is wrong with it but that its files are not there.
func TestExample(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "serving.md"))
	require.NoError(t, err)
	_, text, _ := strings.Cut(string(doc), "\n## Configuration\n")
	_, text, _ = strings.Cut(text, "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	c, err := Parse("popefgen.yaml", []byte(text))
	require.NoError(t, err)
	require.Len(t, c.Models, 3)
	for _, wrong := range c.Check() {
		require.ErrorContains(t, wrong, "no such file")
	}
}
