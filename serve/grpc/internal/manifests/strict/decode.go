// Package strict decodes manifests into the Go types of the platforms that read them, and takes nothing that these do not have.
// It is a module of its own: nothing but tests needs those types.
package strict

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/serving/pkg/apis/config"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

var kinds = map[metav1.TypeMeta]func() any{
	{APIVersion: "apps/v1", Kind: "Deployment"}:                         func() any { return new(appsv1.Deployment) },
	{APIVersion: "v1", Kind: "Service"}:                                 func() any { return new(corev1.Service) },
	{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}:              func() any { return new(policyv1.PodDisruptionBudget) },
	{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"}:     func() any { return new(autoscalingv2.HorizontalPodAutoscaler) },
	{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}:         func() any { return new(networkingv1.NetworkPolicy) },
	{APIVersion: "serving.knative.dev/v1", Kind: "Service"}:             func() any { return new(servingv1.Service) },
	{APIVersion: "serving.kserve.io/v1alpha1", Kind: "ServingRuntime"}:  func() any { return new(servingRuntime) },
	{APIVersion: "serving.kserve.io/v1beta1", Kind: "InferenceService"}: func() any { return new(inferenceService) },
}

// Decode returns the objects of a file. A field that its kind does not have, that is there twice or is of another type, and a
// kind that is not known, are errors; so is a Knative Service that Knative's own validation refuses.
func Decode(file []byte) ([]any, error) {
	var all []any
	for i, doc := range bytes.Split(file, []byte("\n---\n")) {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(doc, &meta); err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		empty, ok := kinds[meta]
		if !ok {
			return nil, fmt.Errorf("document %d: there is no kind %s of %s", i+1, meta.Kind, meta.APIVersion)
		}
		o := empty()
		text, err := yaml.YAMLToJSONStrict(doc)
		if err == nil { // as API servers do: a name in other letters is another name
			var unknown []error
			unknown, err = json.UnmarshalStrict(text, o)
			err = errors.Join(append(unknown, err)...)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d, %s: %w", i+1, meta.Kind, err)
		}
		var invalid error
		switch o := o.(type) {
		case *servingv1.Service:
			full := o.DeepCopy()
			c := config.FromContextOrDefaults(context.Background())
			features := *c.Features
			features.PodSpecPersistentVolumeClaim = config.Enabled // as the manifest asks for where it has a claim
			ctx := config.ToContext(context.Background(), &config.Config{Defaults: c.Defaults, Features: &features, Autoscaler: c.Autoscaler})
			full.SetDefaults(ctx)
			if err := full.Validate(ctx); err != nil {
				invalid = err
			}
		case *servingRuntime:
			invalid = o.validate()
		case *inferenceService:
			invalid = o.validate()
		}
		if invalid != nil {
			return nil, fmt.Errorf("document %d, %s: %w", i+1, meta.Kind, invalid)
		}
		all = append(all, o)
	}
	return all, nil
}
