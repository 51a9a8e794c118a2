package strict

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What KServe's documentation says of its two kinds (ServingRuntime, serving.kserve.io/v1alpha1, and InferenceService,
// serving.kserve.io/v1beta1), as far as a runtime of one model and a predictor go.

type servingRuntime struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              runtimeSpec `json:"spec"`
}

type runtimeSpec struct {
	SupportedModelFormats []modelFormat       `json:"supportedModelFormats"`
	MultiModel            bool                `json:"multiModel"`
	Disabled              bool                `json:"disabled"`
	ProtocolVersions      []string            `json:"protocolVersions"`
	Annotations           map[string]string   `json:"annotations"`
	Labels                map[string]string   `json:"labels"`
	NodeSelector          map[string]string   `json:"nodeSelector"`
	Tolerations           []corev1.Toleration `json:"tolerations"`
	Volumes               []corev1.Volume     `json:"volumes"`
	Containers            []corev1.Container  `json:"containers"`
}

type modelFormat struct {
	Name       string `json:"name"`
	Version    string `json:"version"`
	AutoSelect bool   `json:"autoSelect"`
	Priority   int32  `json:"priority"`
}

type inferenceService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Predictor predictor `json:"predictor"`
	} `json:"spec"`
}

type predictor struct {
	MinReplicas                   *int              `json:"minReplicas"`
	MaxReplicas                   int               `json:"maxReplicas"`
	ScaleTarget                   int               `json:"scaleTarget"`
	ScaleMetric                   string            `json:"scaleMetric"`
	ContainerConcurrency          *int64            `json:"containerConcurrency"`
	Timeout                       *int64            `json:"timeout"`
	TerminationGracePeriodSeconds *int64            `json:"terminationGracePeriodSeconds"` // of the pod, which is inline
	ServiceAccountName            string            `json:"serviceAccountName"`
	Annotations                   map[string]string `json:"annotations"`
	Labels                        map[string]string `json:"labels"`
	Model                         struct {
		ModelFormat     modelFormat                 `json:"modelFormat"`
		Runtime         string                      `json:"runtime"`
		ProtocolVersion string                      `json:"protocolVersion"`
		StorageURI      string                      `json:"storageUri"`
		Resources       corev1.ResourceRequirements `json:"resources"`
		Args            []string                    `json:"args"`
		Env             []corev1.EnvVar             `json:"env"`
	} `json:"model"`
}

var protocols = []string{"v1", "v2", "grpc-v1", "grpc-v2"}

func (r *servingRuntime) validate() error {
	for _, p := range r.Spec.ProtocolVersions {
		if !slices.Contains(protocols, p) {
			return fmt.Errorf("protocolVersions: %q is none of %v", p, protocols)
		}
	}
	for _, f := range r.Spec.SupportedModelFormats {
		if f.Name == "" || f.Priority < 0 || f.AutoSelect && f.Priority == 0 {
			return fmt.Errorf("supportedModelFormats: %+v needs a name, and a priority of at least 1 to be selected", f)
		}
	}
	if len(r.Spec.Containers) == 0 || r.Spec.Containers[0].Name != "kserve-container" {
		return fmt.Errorf("containers: the first is to be kserve-container")
	}
	return nil
}

func (s *inferenceService) validate() error {
	p := &s.Spec.Predictor
	switch {
	case p.MinReplicas != nil && (*p.MinReplicas < 0 || p.MaxReplicas != 0 && *p.MinReplicas > p.MaxReplicas):
		return fmt.Errorf("minReplicas %d, maxReplicas %d", *p.MinReplicas, p.MaxReplicas)
	case !slices.Contains([]string{"", "cpu", "memory", "concurrency", "rps"}, p.ScaleMetric):
		return fmt.Errorf("scaleMetric %q", p.ScaleMetric)
	case !slices.Contains(protocols, p.Model.ProtocolVersion):
		return fmt.Errorf("protocolVersion %q", p.Model.ProtocolVersion)
	case p.Model.ModelFormat.Name == "":
		return fmt.Errorf("modelFormat: it has no name")
	case !strings.Contains(p.Model.StorageURI, "://"):
		return fmt.Errorf("storageUri %q", p.Model.StorageURI)
	}
	return nil
}
