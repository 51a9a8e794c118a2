package popart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/popef"
)

// CacheVariable is the environment variable that names the folder of compiled models, and makes sessions use it that Options.EngineCaching does not.
const CacheVariable = "POPART_CACHE_DIR"

// usualCache is the folder of compiled models where options and environment name none.
const usualCache = "session_cache"

// cacheBlob is the opaque blob, JSON, with what a session knows of its compiled model besides.
const cacheBlob = "popefgen.session"

// cached is what stands in cacheBlob.
type cached struct {
	Key      string   `json:"key"`
	Digest   string   `json:"digest"` // of all else in the file
	Warnings []string `json:"warnings,omitempty"`
}

// cacheFolder returns the folder of compiled models, empty for none.
func (o *Options) cacheFolder() string {
	folder := os.Getenv(CacheVariable)
	switch {
	case !o.EngineCaching && folder == "":
		return ""
	case o.CachePath != "":
		return o.CachePath
	case folder == "":
		return usualCache
	}
	return folder
}

// compiledBy returns what a model is compiled by: options without those that change no compiled model.
func (o *Options) compiledBy() Options {
	own := *o
	own.EngineOptions, own.ConvolutionOptions, own.ReportOptions, own.VariableWeights = nil, nil, nil, false
	own.Logger, own.DotChecks, own.LogDir, own.TensorMap, own.EngineCaching, own.CachePath = nil, nil, "", "", false, ""
	return own
}

// cached returns the compiled model of what identifies it: of the cache if it is there, else of compile, which the cache then gets. Drawing stages takes a compilation.
func (k *making) cached(ctx context.Context, m *onnx.Model, compile func() (*popef.Model, error), what ...any) (*popef.Model, error) {
	folder := k.o.cacheFolder()
	if folder == "" || moduleVersion() == "" {
		return compile()
	}
	nameless := *m
	nameless.Path, nameless.Size = "", 0
	f := newFingerprint()
	f.add(compiler(), k.kind, k.o.compiledBy(), &nameless)
	f.add(what...)
	key := f.sum()
	path := filepath.Join(folder, key+".popef")
	if len(k.dots) == 0 {
		p, about, err := readCached(ctx, path, key)
		switch {
		case err == nil:
			k.warnings = append(k.warnings, about.Warnings...)
			k.logs.log(moduleCache, slog.LevelInfo, "the compiled model is taken from the cache", slog.String("file", path), k.took())
			return p, nil
		case errors.Is(err, fs.ErrNotExist):
			k.logs.log(moduleCache, slog.LevelDebug, "the cache does not have the model", slog.String("file", path))
		case ctx.Err() != nil:
			return nil, ctx.Err()
		default:
			k.logs.log(moduleCache, slog.LevelWarn, "a file of the cache is not used, and is replaced", slog.Any("error", err))
		}
	}
	before := len(k.warnings)
	p, err := compile()
	if err != nil {
		return nil, err
	}
	if err := writeCached(path, p, cached{Key: key, Warnings: k.warnings[before:]}); err != nil { // the session works without
		k.logs.log(moduleCache, slog.LevelError, "the compiled model can't be kept", slog.Any("error", err))
		k.warnings = append(k.warnings, fmt.Sprintf("cache of compiled models: %v", err))
	} else {
		k.logs.log(moduleCache, slog.LevelInfo, "the compiled model is kept", slog.String("file", path), k.took())
	}
	return p, nil
}

// readCached reads a compiled model, in memory of its own: whatever becomes of the file, the session goes on.
func readCached(ctx context.Context, path, key string) (_ *popef.Model, about cached, err error) {
	if _, err := os.Stat(path); err != nil {
		return nil, about, err
	}
	m, err := popef.LoadCopyContext(ctx, path)
	if err != nil {
		return nil, about, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", path, err), m.Close())
		}
	}()
	found := false
	for _, o := range m.Opaques() {
		if o.Name != cacheBlob {
			continue
		}
		text, err := o.Bytes()
		if err != nil {
			return nil, about, err
		}
		if err := json.Unmarshal(text, &about); err != nil {
			return nil, about, fmt.Errorf("opaque blob %q: %w", cacheBlob, err)
		}
		found = true
	}
	digest, err := digestOf(m)
	switch {
	case err != nil:
		return nil, about, err
	case !found:
		return nil, about, fmt.Errorf("it is no file of the cache: it has no opaque blob %q", cacheBlob)
	case about.Key != key:
		return nil, about, fmt.Errorf("it is that of the key %s: it was renamed", about.Key)
	case about.Digest != digest:
		return nil, about, fmt.Errorf("its content has the digest %s, and should have %s: it is damaged", digest, about.Digest)
	}
	return m, about, nil
}

// writeCached writes a compiled model. The file appears whole, in the place of one that is there: processes that do so at a time write the same.
func writeCached(path string, m *popef.Model, about cached) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	var err error
	if about.Digest, err = digestOf(m); err != nil {
		return err
	}
	text, err := json.Marshal(about)
	if err != nil {
		return err
	}
	return popef.WriteFile(path, func(w *popef.Writer) error {
		if err := writeModel(w, m, dataOf(m)); err != nil {
			return err
		}
		return writeOpaque(w, cacheBlob, m.Metadata.Executable, text)
	})
}

// digestOf hashes what a session uses of a model's file.
func digestOf(m *popef.Model) (string, error) {
	f := newFingerprint()
	f.add(m.Metadata)
	code, err := m.Executable()
	if err != nil {
		return "", err
	}
	f.add(code)
	for _, d := range dataOf(m) {
		f.add(d.name, d.info, d.data)
	}
	for _, o := range m.Opaques() {
		if o.Name == cacheBlob {
			continue
		}
		b, err := o.Bytes()
		if err != nil {
			return "", err
		}
		f.add(o.Name, b)
	}
	return f.sum(), nil
}
