// Package manifests writes what container platforms need to run popefgen-serve: for Kubernetes by itself, for Knative and for
// KServe. What it writes is decoded, strictly, into the platforms' own Go types by the tests of the module below it.
package manifests

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"
)

//go:embed *.yaml.tmpl
var files embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"text":    text,
	"seconds": func(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) },
	"milli":   func(d time.Duration) string { return fmt.Sprintf("%dm", d.Milliseconds()) },
}).Option("missingkey=error").ParseFS(files, "*.yaml.tmpl"))

// text writes a string that YAML can't take for anything else: as JSON does.
func text(s string) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(s)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// Platforms are what there are manifests for.
var Platforms = []string{"kubernetes", "knative", "kserve"}

// Options say what to write. [Defaults] has those that nothing else is known of.
type Options struct {
	Platform  string // one of Platforms
	Name      string // of everything that is made
	Namespace string // "": the one that they are applied in
	Image     string // with the command, as deploy/Dockerfile makes it
	// Claim is the PersistentVolumeClaim with the folder of models, in which each has a folder with its versions. "": the image
	// has them in /models. KServe gets them from StorageURI.
	Claim      string
	StorageURI string // for KServe: where that folder is, such as pvc://CLAIM/models
	// Replicas is how many servers there are at least, MaxReplicas at most.
	Replicas, MaxReplicas int
	CPU, Memory           string // of a server, as Kubernetes writes quantities
	// DrainDelay is how long a server that is to stop serves on, until nobody sends it requests any more; DrainLimit is
	// how long requests under way may take then.
	DrainDelay, DrainLimit time.Duration
	// QueueTime is how long requests may wait on average; more servers are started above it (kubernetes).
	QueueTime time.Duration
	// Concurrency is how many requests a server is to have at the same time; more servers are started above
	// it (Knative, KServe).
	Concurrency int
	// GRPC has Knative, which gives a server one port, send gRPC there instead of REST, and KServe too.
	GRPC bool
}

// Defaults are Options with all that does not depend on whose models they are.
func Defaults() Options {
	return Options{
		Platform: "kubernetes", Name: "popefgen-serve", Image: "popefgen-serve:latest",
		Replicas: 2, MaxReplicas: 8, CPU: "2", Memory: "1Gi",
		DrainDelay: 5 * time.Second, DrainLimit: 30 * time.Second, QueueTime: 20 * time.Millisecond, Concurrency: 16,
	}
}

var (
	label    = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$`) // short enough for the names that are made of it
	quantity = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$`)
	blank    = regexp.MustCompile(`[\s\x00-\x1f]`)
)

func (o *Options) check() error {
	var errs []error
	want := func(ok bool, option, found, expected string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s is %q, expected %s", option, found, expected))
		}
	}
	want(slices.Contains(Platforms, o.Platform), "platform", o.Platform, "one of "+strings.Join(Platforms, ", "))
	want(label.MatchString(o.Name), "name", o.Name, "at most 40 small letters, digits and -, beginning with a letter")
	want(o.Namespace == "" || label.MatchString(o.Namespace), "namespace", o.Namespace, "at most 40 small letters, digits and -, beginning with a letter")
	want(o.Image != "" && !blank.MatchString(o.Image), "image", o.Image, "the name of an image")
	want(o.Claim == "" || label.MatchString(o.Claim), "claim", o.Claim, "the name of a PersistentVolumeClaim, at most 40 small letters, digits and -")
	kserve := o.Platform == "kserve"
	want(!kserve || strings.Contains(o.StorageURI, "://") && !blank.MatchString(o.StorageURI), "storage URI", o.StorageURI, "where KServe finds the folder of models, such as pvc://CLAIM/models")
	want(kserve || o.StorageURI == "", "storage URI", o.StorageURI, "none: only KServe fetches models")
	want(!kserve || o.Claim == "", "claim", o.Claim, "none: KServe fetches models from the storage URI")
	want(quantity.MatchString(o.CPU), "CPU", o.CPU, "a quantity such as 2 or 500m")
	want(quantity.MatchString(o.Memory), "memory", o.Memory, "a quantity such as 512Mi")
	scale := fmt.Sprintf("%d to %d", o.Replicas, o.MaxReplicas)
	least := 1
	if o.Platform != "kubernetes" {
		least = 0 // they start servers when requests come
	}
	want(o.Replicas >= least && o.MaxReplicas >= max(o.Replicas, 1), "replicas", scale, fmt.Sprintf("at least %d, and at most the second number", least))
	want(o.DrainDelay >= 0 && o.DrainDelay <= time.Hour, "drain delay", o.DrainDelay.String(), "0s to 1h")
	want(o.DrainLimit > 0 && o.DrainLimit <= time.Hour, "drain limit", o.DrainLimit.String(), "more than 0s and at most 1h")
	want(o.QueueTime >= time.Millisecond, "queue time", o.QueueTime.String(), "at least 1ms")
	want(o.Concurrency > 0, "concurrency", fmt.Sprint(o.Concurrency), "at least 1")
	return errors.Join(errs...)
}

// Grace is how long a server may take to stop before it is killed.
func (o Options) Grace() time.Duration { return o.DrainDelay + o.DrainLimit + 5*time.Second }

// Rest is how long a server has been told to serve on after the signal: nothing where the platform waits before it sends it.
func (o Options) Rest() time.Duration {
	if o.Platform == "kubernetes" {
		return 0
	}
	return o.DrainDelay
}

// Write writes the manifests as documents of one YAML file. The error names every option that is not right.
func Write(w io.Writer, o Options) error {
	if err := o.check(); err != nil {
		return fmt.Errorf("manifests: %w", err)
	}
	return templates.ExecuteTemplate(w, o.Platform+".yaml.tmpl", o)
}
