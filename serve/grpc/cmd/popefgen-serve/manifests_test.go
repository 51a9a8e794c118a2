package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/grpc/internal/manifests"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
)

// TestManifests has the command write manifests for every platform, and take the arguments that it is started with there.
func TestManifests(t *testing.T) {
	model, err := testmodel.SimplePopEF()
	require.NoError(t, err)
	models := t.TempDir()
	folder := filepath.Join(models, "simple", "1")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "model.popef"), model, 0o644))
	list := regexp.MustCompile(`(?m)^ +args:\n((?: +- .*\n)+)`)
	for _, platform := range manifests.Platforms {
		for _, more := range [][]string{nil, {"--grpc", "--drain-delay", "1500ms"}} {
			args := append([]string{"popefgen-serve", "manifests", "--storage-uri", "pvc://models/models"}, more...)
			if platform != "kserve" {
				args = append(args[:2], more...)
			}
			var out, errs bytes.Buffer
			require.Equal(t, exitOK, run(t.Context(), append(args, platform), &out, &errs), errs.String())
			found := list.FindStringSubmatch(out.String())
			require.NotNil(t, found, out.String())
			command := []string{"popefgen-serve", "--check"}
			for line := range strings.Lines(found[1]) {
				command = append(command, strings.TrimPrefix(strings.TrimSpace(line), "- "))
			}
			require.Contains(t, []string{"/models", "/mnt/models"}, command[len(command)-1])
			command[len(command)-1] = models
			require.Equal(t, exitOK, run(t.Context(), command, &out, &errs), "%v: %s", command, errs.String())
		}
	}
	var out, errs bytes.Buffer
	require.Equal(t, exitUsage, run(t.Context(), []string{"popefgen-serve", "manifests"}, &out, &errs))
	require.Equal(t, exitUsage, run(t.Context(), []string{"popefgen-serve", "manifests", "--cpu", "two", "knative"}, &out, &errs))
	require.Contains(t, errs.String(), `CPU is "two"`)
	require.Contains(t, errs.String(), "hint: popefgen-serve manifests --help")
}

// TestManifestsOfDeploy has the command, as a process, write what is committed in deploy/, by the flags that docs/serving.md names.
func TestManifestsOfDeploy(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "serving.md"))
	require.NoError(t, err)
	for platform, flags := range map[string][]string{
		"kubernetes": {"--claim", "models"},
		"knative":    {"--claim", "models"},
		"kserve":     {"--storage-uri", "pvc://models/models"},
	} {
		require.Contains(t, string(doc), "`"+strings.Join(flags, " ")+"`")
		cmd := command(t.Context(), append(append([]string{"manifests"}, flags...), platform)...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		found, err := cmd.Output()
		require.NoError(t, err, errs.String())
		want, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "deploy", platform+".yaml"))
		require.NoError(t, err)
		require.Equal(t, string(want), string(found), platform)
	}
	require.Len(t, manifests.Platforms, 3)

	help, err := command(t.Context(), "manifests", "--help").Output()
	require.NoError(t, err)
	for _, f := range manifestsCommand().Flags {
		require.Regexp(t, `(?m)^   --`+f.Names()[0]+`\b.*  \S.* \S`, string(help)) // the flag, and what it does
	}
	for _, platform := range manifests.Platforms {
		require.Contains(t, string(help), platform)
	}
}

// TestDockerfile keeps the image's build and start to what there is: the package that it builds, arguments that the command takes.
func TestDockerfile(t *testing.T) {
	root := filepath.Join("..", "..", "..", "..")
	text, err := os.ReadFile(filepath.Join(root, "deploy", "Dockerfile"))
	require.NoError(t, err)
	build := regexp.MustCompile(`go -C (\S+) build .*-o (\S+) (\S+)\n`).FindStringSubmatch(string(text))
	require.NotNil(t, build)
	here, err := os.Stat(".")
	require.NoError(t, err)
	built, err := os.Stat(filepath.Join(root, build[1], build[3]))
	require.NoError(t, err)
	require.True(t, os.SameFile(here, built))
	stages := regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(string(text), -1)
	require.Len(t, stages, 2)
	require.Regexp(t, `^gcr\.io/distroless/static-\S+:nonroot$`, stages[1][1])
	require.Regexp(t, `(?m)^USER [1-9]\d*:[1-9]\d*$`, string(text))
	require.Contains(t, string(text), "COPY --from=build "+build[2]+" "+build[2])
	require.Contains(t, string(text), `ENTRYPOINT ["`+build[2]+`"]`)

	version, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	need := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(version))
	require.Equal(t, "golang:"+need[1], stages[0][1])

	command := []string{"popefgen-serve", "--check"}
	for _, a := range regexp.MustCompile(`"([^"]*)"`).FindAllStringSubmatch(regexp.MustCompile(`(?m)^CMD .*$`).FindString(string(text)), -1) {
		command = append(command, a[1])
	}
	require.Equal(t, "/models", command[len(command)-1])
	command[len(command)-1] = t.TempDir() // without models it may say so, but not that it knows no such flag
	var out, errs bytes.Buffer
	require.NotEqual(t, exitUsage, run(t.Context(), command, &out, &errs), errs.String())
}
