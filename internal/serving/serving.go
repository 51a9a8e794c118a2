// Package serving is the part of popefgen.yaml that popefgen-serve reads: which models are served, where, and
// within what limits. What the files say is checked here as a whole, so that all mistakes are named at once.
package serving

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/popefgen/popefgen/internal/plainyaml"
	"github.com/popefgen/popefgen/internal/sizes"
	"github.com/popefgen/popefgen/serve/access"
)

// File is a popefgen.yaml, of which this package reads one key.
type File struct {
	Models any     `yaml:"models"` // the packages that popefgen generates
	Serve  *Config `yaml:"serve"`
}

// Config says what a server does. Its keys are the names of the flags of popefgen-serve; paths are relative to the
// file's folder.
type Config struct {
	HTTP          *string  `yaml:"http"`           // address of REST; "": none, nil: the default
	GRPC          *string  `yaml:"grpc"`           // address of gRPC; "": none
	Admin         string   `yaml:"admin"`          // address of the page for those who run the server; "": none
	TritonMetrics bool     `yaml:"triton-metrics"` // by Triton\'s names too
	ServerName    string   `yaml:"server-name"`    // in the metadata
	Control       string   `yaml:"control"`        // who loads models after the start: "none", "watch", or "explicit": clients
	Repository    bool     `yaml:"repository"`     // callers of REST and gRPC may load and unload models, not those of the admin address alone
	LoadModel     []string `yaml:"load-model"`     // what is loaded at the start if control is explicit; "*": all
	Poll          Duration `yaml:"poll"`           // between two looks at the files that are watched
	DrainDelay    Duration `yaml:"drain-delay"`
	DrainLimit    Duration `yaml:"drain-limit"`
	AccessLog     int      `yaml:"access-log"`  // a line for one of so many requests that succeed, and for those that fail; 0: none
	Connections   *int     `yaml:"connections"` // of each listener
	Streams       *int     `yaml:"streams"`     // requests under way on a connection of HTTP/2
	Message       *int64   `yaml:"message"`     // bytes of a message of gRPC; nil: what the models of the start need

	TLS    *TLS    `yaml:"tls"`
	Auth   *Auth   `yaml:"auth"`
	Models []Model `yaml:"models"`

	Options `yaml:",inline"` // of models that do not say otherwise
}

// Options are those of a model.
type Options struct {
	Versions string                    `yaml:"versions"` // "latest" or "all"
	Replicas *int                      `yaml:"replicas"`
	Threads  *int                      `yaml:"threads"`
	Linger   *Duration                 `yaml:"linger"`
	Batch    *sizes.List               `yaml:"batch"` // for .onnx models, in the words of popefgen compile
	Dim      map[string]sizes.List     `yaml:"dim"`
	Size     []map[string]int64        `yaml:"size"`
	Pad      map[string]map[string]any `yaml:"pad"`
	Limits   *Limits                   `yaml:"limits"`
}

// Model is a file or a folder of models, with options of its own.
type Model struct {
	Path    string            `yaml:"path"`
	Name    string            `yaml:"name"`   // of the model of a file
	Labels  map[string]string `yaml:"labels"` // files with the names of classes, a line each, by output
	Options `yaml:",inline"`
}

// Limits are those of requests to a model.
type Limits struct {
	Computing *int      `yaml:"computing"`
	Waiting   *int      `yaml:"waiting"`
	Timeout   *Duration `yaml:"timeout"`
}

// TLS names the files of a server that speaks TLS.
type TLS struct {
	Certificate     string `yaml:"certificate"`
	Key             string `yaml:"key"`
	ClientCAs       string `yaml:"client-cas"`
	ClientsOptional bool   `yaml:"clients-optional"`
}

// Auth says who may do what: those of either.
type Auth struct {
	Tokens       string          `yaml:"tokens"`       // file
	Certificates map[string]Rule `yaml:"certificates"` // by a name of the client's certificate
}

// Rule is what a client may do.
type Rule struct {
	Calls  []string `yaml:"calls"`  // groups of calls, or *; nil: all but those of who runs the server
	Models []string `yaml:"models"` // nil: all
}

// most is the largest number of connections, and of streams, that is not taken for a mistake.
const most = 1 << 20

// Duration is a time such as 250ms.
type Duration time.Duration

// UnmarshalYAML implements the yaml package's InterfaceUnmarshaler.
func (d *Duration) UnmarshalYAML(unmarshal func(any) error) error {
	var text string
	if err := unmarshal(&text); err != nil {
		return err
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("found %q, want a time such as 250ms or 30s", text)
	}
	*d = Duration(v)
	return nil
}

// Controls are the values of Config.Control.
var Controls = []string{"none", "watch", "explicit"}

// advice helps who writes such a file.
var advice = plainyaml.Advice{Fields: "docs/serving.md lists the fields"}

// Read reads the configuration of a file, nil if it has none.
func Read(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Parse is Read of a file's contents.
func Parse(path string, data []byte) (*Config, error) {
	var f File
	if _, err := plainyaml.Decode(data, &f, advice); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f.Serve != nil {
		f.Serve.relative(filepath.Dir(path))
	}
	return f.Serve, nil
}

// relative makes paths those from the working directory.
func (c *Config) relative(dir string) {
	in := func(path *string) {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
	if t := c.TLS; t != nil {
		in(&t.Certificate)
		in(&t.Key)
		in(&t.ClientCAs)
	}
	if c.Auth != nil {
		in(&c.Auth.Tokens)
	}
	for i := range c.Models {
		m := &c.Models[i]
		in(&m.Path)
		for output, path := range m.Labels {
			in(&path)
			m.Labels[output] = path
		}
	}
}

// Check returns every mistake of a configuration, in the order of its keys.
func (c *Config) Check() (mistakes []error) {
	wrong := func(key, format string, args ...any) {
		mistakes = append(mistakes, fmt.Errorf(key+": "+format, args...))
	}
	taken := map[string]string{}
	for _, a := range []struct{ key, addr string }{{"http", text(c.HTTP)}, {"grpc", text(c.GRPC)}, {"admin", c.Admin}} {
		if a.addr == "" {
			continue
		}
		host, port, err := net.SplitHostPort(a.addr)
		n, bad := strconv.ParseUint(port, 10, 16)
		switch {
		case err != nil || bad != nil:
			wrong(a.key, "found %q, want an address such as :8000 or localhost:8000", a.addr)
		case n != 0 && taken[port] != "" && host == "":
			wrong(a.key, "%s is the address of %s too", a.addr, taken[port])
		}
		taken[port] = a.key
	}
	if text(c.HTTP) == "" && text(c.GRPC) == "" {
		wrong("http", "neither http nor grpc has an address: nobody could send a request")
	}
	if c.Control != "" && !slices.Contains(Controls, c.Control) {
		wrong("control", "found %q, want %s", c.Control, strings.Join(Controls, ", "))
	}
	if c.Explicit() && c.Admin == "" && !c.Repository {
		wrong("control", "explicit has clients load models, and none can: want an address of admin, or repository for callers of REST and gRPC too")
	}
	if c.Repository && !c.Explicit() {
		wrong("repository", "has clients load models, and control is %s, want explicit", c.Control)
	}
	if len(c.LoadModel) > 0 && !c.Explicit() {
		wrong("load-model", "names what is loaded at the start if control is explicit; with another one all models are")
	}
	if c.Poll < 0 {
		wrong("poll", "found %v, want a time above 0", time.Duration(c.Poll))
	}
	if c.DrainDelay < 0 {
		wrong("drain-delay", "found %v, want 0 or more", time.Duration(c.DrainDelay))
	}
	if c.DrainLimit < 0 {
		wrong("drain-limit", "found %v, want a time above 0", time.Duration(c.DrainLimit))
	}
	if c.AccessLog < 0 {
		wrong("access-log", "found %d, want N for one of N requests that succeed, or 0 for no log", c.AccessLog)
	}
	if c.Connections != nil && (*c.Connections < 1 || *c.Connections > most) {
		wrong("connections", "found %d, want 1 to %d", *c.Connections, most)
	}
	if c.Streams != nil && (*c.Streams < 1 || *c.Streams > most) {
		wrong("streams", "found %d, want 1 to %d", *c.Streams, most)
	}
	if c.Message != nil && (*c.Message < 1 || *c.Message > math.MaxInt32) {
		wrong("message", "found %d, want 1 to %d bytes", *c.Message, math.MaxInt32)
	}
	if t := c.TLS; t != nil {
		if t.Certificate == "" || t.Key == "" {
			wrong("tls", "want both certificate and key")
		}
		for _, f := range []struct{ key, path string }{{"certificate", t.Certificate}, {"key", t.Key}, {"client-cas", t.ClientCAs}} {
			if err := readable(f.path); err != nil {
				wrong("tls."+f.key, "%v", err)
			}
		}
	}
	if c.Auth != nil {
		if c.Auth.Tokens == "" && len(c.Auth.Certificates) == 0 {
			wrong("auth", "want a file of tokens, or names of certificates: nobody could send a request")
		} else if err := readable(c.Auth.Tokens); err != nil {
			wrong("auth.tokens", "%v", err)
		}
		if len(c.Auth.Certificates) > 0 && (c.TLS == nil || c.TLS.ClientCAs == "") {
			wrong("auth.certificates", "want tls.client-cas, the certificates that sign those of clients: without it clients have none")
		}
		if _, err := c.Auth.Rules(); err != nil {
			mistakes = append(mistakes, err)
		}
	}
	c.Options.check("", wrong)
	if len(c.Models) == 0 {
		wrong("models", "there is nothing to serve: want files or folders")
	}
	for i := range c.Models {
		m := &c.Models[i]
		at := fmt.Sprintf("models[%d].", i)
		st, err := os.Stat(m.Path)
		switch {
		case m.Path == "":
			wrong(at+"path", "want a file or a folder")
		case err != nil:
			wrong(at+"path", "%v", err)
		case st.IsDir() && (m.Name != "" || len(m.Labels) > 0):
			wrong(at+"name", "%s is a folder, whose models have names of their own; name and labels are for files", m.Path)
		}
		for _, output := range slices.Sorted(maps.Keys(m.Labels)) {
			if err := readable(m.Labels[output]); err != nil {
				wrong(at+"labels."+output, "%v", err)
			}
		}
		m.Options.check(at, wrong)
	}
	return mistakes
}

// Explicit reports whether clients load and unload models, which repository asks for too.
func (c *Config) Explicit() bool {
	return c.Control == "explicit" || c.Control == "" && c.Repository
}

// Rules returns what clients may do by the names of their certificates.
func (a *Auth) Rules() (map[string]access.Rule, error) {
	rules := map[string]access.Rule{}
	for _, name := range slices.Sorted(maps.Keys(a.Certificates)) {
		given := a.Certificates[name]
		r := access.Rule{Models: given.Models}
		if given.Calls != nil {
			var err error
			if r.APIs, err = access.ParseAPIs(strings.Join(given.Calls, ",")); err != nil {
				return nil, fmt.Errorf("auth.certificates.%s.calls: found %q: %w", name, given.Calls, err)
			}
		}
		rules[name] = r
	}
	return rules, nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// Of returns the options of a model: its own, and those of the server where it has none.
func (c *Config) Of(m *Model) Options {
	o := m.Options
	o.Versions = cmp.Or(o.Versions, c.Versions)
	if m.Size != nil && m.Batch == nil && m.Dim == nil {
		c = &Config{Options: c.Options}
		c.Batch, c.Dim = nil, nil // its members are named one by one
	} else if m.Size == nil && (m.Batch != nil || m.Dim != nil) {
		c = &Config{Options: c.Options}
		c.Size = nil
	}
	o.Replicas, o.Threads, o.Linger, o.Batch = cmp.Or(o.Replicas, c.Replicas), cmp.Or(o.Threads, c.Threads), cmp.Or(o.Linger, c.Linger), cmp.Or(o.Batch, c.Batch)
	if o.Dim == nil {
		o.Dim = c.Dim
	}
	if o.Size == nil {
		o.Size = c.Size
	}
	if o.Pad == nil {
		o.Pad = c.Pad
	}
	var l Limits
	for _, from := range []*Limits{c.Limits, o.Limits} {
		if from != nil {
			l = Limits{cmp.Or(from.Computing, l.Computing), cmp.Or(from.Waiting, l.Waiting), cmp.Or(from.Timeout, l.Timeout)}
		}
	}
	o.Limits = &l
	return o
}

// readable returns why a file can not be read; "" is none.
func readable(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return f.Close()
}

func (o *Options) check(at string, wrong func(key, format string, args ...any)) {
	if o.Versions != "" && o.Versions != "latest" && o.Versions != "all" {
		wrong(at+"versions", "found %q, want latest or all", o.Versions)
	}
	if o.Replicas != nil && *o.Replicas < 0 {
		wrong(at+"replicas", "found %d, want at least 1, or 0 for one on each core", *o.Replicas)
	}
	if o.Threads != nil && *o.Threads < 0 {
		wrong(at+"threads", "found %d, want at least 1, or 0", *o.Threads)
	}
	if o.Linger != nil && *o.Linger < 0 {
		wrong(at+"linger", "found %v, want 0 or more", time.Duration(*o.Linger))
	}
	if o.Batch != nil {
		if _, err := sizes.ParseBatch(o.Batch.Text); err != nil {
			wrong(at+"batch", "%v", err)
		}
	}
	for name, l := range o.Dim {
		if _, err := sizes.Parse(l.Text); err != nil {
			wrong(at+"dim."+name, "%v", err)
		}
	}
	for i, member := range o.Size {
		for _, name := range slices.Sorted(maps.Keys(member)) {
			if member[name] < 0 {
				wrong(fmt.Sprintf("%ssize[%d].%s", at, i, name), "found %d, want a size", member[name])
			}
		}
	}
	if _, err := sizes.PadsOf(o.Pad); err != nil {
		wrong(at+"pad", "%v", err)
	}
	if l := o.Limits; l != nil {
		if l.Computing != nil && *l.Computing < 0 {
			wrong(at+"limits.computing", "found %d, want at least 1, or 0 for what the model computes in parallel", *l.Computing)
		}
		if l.Timeout != nil && *l.Timeout <= 0 {
			wrong(at+"limits.timeout", "found %v, want a time above 0", time.Duration(*l.Timeout))
		}
	}
}
