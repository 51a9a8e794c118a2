package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/popefgen/popefgen/serve/grpc/internal/inference"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
)

// TestExplicit has clients of the admin address load and unload models: what is not there is refused, and callers of the other
// address may do neither.
func TestExplicit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "digits.popef")
	write(t, path, compiled(t, "digits", false))
	p := start(t, "--control", "explicit", "--load-model", "digits", "--admin", "127.0.0.1:0", "--triton-metrics", dir)
	want, err := p.ask(http.DefaultClient)
	require.NoError(t, err)
	post := func(at, what string) (int, string) {
		r, err := http.Post(at+"/v2/repository/"+what, "application/json", strings.NewReader("{}"))
		require.NoError(t, err)
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return r.StatusCode, string(text)
	}
	write(t, path, compiled(t, "digits", true))
	status, _ := post(p.http, "models/digits/load")
	require.NotEqual(t, http.StatusOK, status, "callers of models load none")
	status, text := post(p.admin, "models/digits/load")
	require.Equal(t, http.StatusOK, status, text)
	got, err := p.ask(http.DefaultClient)
	require.NoError(t, err)
	require.NotEqual(t, want, got)
	status, text = post(p.admin, "models/..%2fdigits/load")
	require.NotEqual(t, http.StatusOK, status, text)
	write(t, path, compiled(t, "diabetes", false))
	status, text = post(p.admin, "models/digits/load")
	require.NotEqual(t, http.StatusOK, status)
	require.Contains(t, text, "would break callers")
	status, text = post(p.admin, "index")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "would break callers")
	require.Contains(t, text, "READY")
	r, err := http.Get(p.admin + "/metrics")
	require.NoError(t, err)
	defer r.Body.Close()
	all, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Contains(t, string(all), "popefgen_")
	require.Contains(t, string(all), "nv_inference_")
	status, text = post(p.admin, "models/digits/unload")
	require.Equal(t, http.StatusOK, status, text)
	_, err = p.ask(http.DefaultClient)
	require.Error(t, err)
	p.stop(t)
}

// TestRepository has callers of REST and gRPC load and unload models, which takes --repository and the right to it: nothing serves before, what is gone is not in the index, and configurations or files of clients are refused by name.
func TestRepository(t *testing.T) {
	dir := t.TempDir()
	simple, err := testmodel.SimplePopEF()
	require.NoError(t, err)
	write(t, filepath.Join(dir, "models", "digits", "1", "model.popef"), compiled(t, "digits", false))
	write(t, filepath.Join(dir, "models", "simple", "2", "model.popef"), simple)
	const keeper, caller = "token-of-the-keeper-of-models", "token-of-who-asks-the-models"
	write(t, filepath.Join(dir, "tokens"), []byte(keeper+" *\n"+caller+"\n"))
	p := start(t, "--repository", "--tokens", filepath.Join(dir, "tokens"), filepath.Join(dir, "models"))
	conn, err := grpc.NewClient(p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()

	// Over REST and over gRPC in turns; both say the same.
	rest := func(token, path, body string) (int, string) {
		r, err := http.NewRequest(http.MethodPost, p.http+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		got, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer got.Body.Close()
		text, err := io.ReadAll(got.Body)
		require.NoError(t, err)
		return got.StatusCode, string(text)
	}
	call := func(token, method string, q, a any) error {
		return conn.Invoke(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token), "/inference.GRPCInferenceService/"+method, q, a)
	}
	index := func() string {
		status, text := rest(keeper, "/v2/repository/index", "")
		require.Equal(t, http.StatusOK, status, text)
		a := &inference.RepositoryIndexResponse{}
		require.NoError(t, call(keeper, "RepositoryIndex", &inference.RepositoryIndexRequest{}, a))
		var rows []struct{ Name, Version, State, Reason string }
		require.NoError(t, json.Unmarshal([]byte(text), &rows))
		require.Len(t, a.Models, len(rows))
		var all []string
		for i, row := range rows {
			require.Equal(t, []string{row.Name, row.Version, row.State, row.Reason}, []string{a.Models[i].Name, a.Models[i].Version, a.Models[i].State, a.Models[i].Reason})
			all = append(all, strings.Join(strings.Fields(row.Name+" "+row.Version+" "+row.State+" "+row.Reason), " "))
		}
		return strings.Join(all, "; ")
	}
	ready := func(model string) bool {
		a := &inference.ModelReadyResponse{}
		require.NoError(t, call(caller, "ModelReady", &inference.ModelReadyRequest{Name: model}, a))
		return a.Ready
	}
	server := &inference.ServerMetadataResponse{}
	require.NoError(t, call(caller, "ServerMetadata", &inference.ServerMetadataRequest{}, server))
	require.Contains(t, server.Extensions, "model_repository")
	require.Equal(t, "digits UNAVAILABLE not loaded; simple UNAVAILABLE not loaded", index())
	require.False(t, ready("simple"))

	load, unload := &inference.RepositoryModelLoadResponse{}, &inference.RepositoryModelUnloadResponse{}
	status, text := rest(caller, "/v2/repository/models/digits/load", "{}")
	require.Equal(t, http.StatusForbidden, status, text)
	require.Equal(t, codes.PermissionDenied, grpcstatus.Code(call(caller, "RepositoryModelLoad", &inference.RepositoryModelLoadRequest{ModelName: "simple"}, load)))
	require.Equal(t, codes.PermissionDenied, grpcstatus.Code(call(caller, "RepositoryIndex", &inference.RepositoryIndexRequest{}, &inference.RepositoryIndexResponse{})))
	status, text = rest(keeper, "/v2/repository/models/digits/load", "{}")
	require.Equal(t, http.StatusOK, status, text)
	require.NoError(t, call(keeper, "RepositoryModelLoad", &inference.RepositoryModelLoadRequest{ModelName: "simple"}, load))
	require.Equal(t, "digits 1 READY; simple 2 READY", index())
	require.True(t, ready("simple"))

	for _, key := range []string{"config", "file:1/model.popef"} {
		status, text = rest(keeper, "/v2/repository/models/simple/load", `{"parameters":{"`+key+`":"{}"}}`)
		require.Equal(t, http.StatusNotImplemented, status, text)
		require.Contains(t, text, "failed to load 'simple': parameter '"+key+"'")
		err = call(keeper, "RepositoryModelLoad", &inference.RepositoryModelLoadRequest{ModelName: "simple", Parameters: map[string]*inference.ModelRepositoryParameter{key: {}}}, load)
		require.Equal(t, codes.Unimplemented, grpcstatus.Code(err))
		require.ErrorContains(t, err, "failed to load 'simple': parameter '"+key+"'")
	}
	status, text = rest(keeper, "/v2/repository/models/wrong_model_name/load", "{}")
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, text, "failed to load 'wrong_model_name'")
	require.ErrorContains(t, call(keeper, "RepositoryModelLoad", &inference.RepositoryModelLoadRequest{ModelName: "wrong_model_name"}, load), "failed to load 'wrong_model_name'")

	status, text = rest(keeper, "/v2/repository/models/digits/unload", `{"parameters":{"unload_dependents":false}}`)
	require.Equal(t, http.StatusOK, status, text)
	require.NoError(t, call(keeper, "RepositoryModelUnload", &inference.RepositoryModelUnloadRequest{ModelName: "simple"}, unload))
	require.False(t, ready("simple"))
	require.False(t, ready("digits"))
	require.Eventually(t, func() bool { return index() == "digits 1 UNAVAILABLE unloaded; simple 2 UNAVAILABLE unloaded" }, 10*time.Second, time.Millisecond)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "models", "digits")))
	require.NoError(t, os.Rename(filepath.Join(dir, "models", "simple", "2"), filepath.Join(dir, "models", "simple", "3")))
	require.Equal(t, "simple UNAVAILABLE not loaded", index(), "what is gone is not in the index")
	p.stop(t)
}
