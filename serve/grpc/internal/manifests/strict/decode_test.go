package strict

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/popefgen/popefgen/serve/grpc/internal/manifests"
)

func committed(t *testing.T, platform string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "..", "deploy", platform+".yaml"))
	require.NoError(t, err)
	return string(b)
}

// TestCommitted decodes the files of deploy/.
func TestCommitted(t *testing.T) {
	for platform, kinds := range map[string][]any{
		"kubernetes": {&appsv1.Deployment{}, &corev1.Service{}, &corev1.Service{}, &policyv1.PodDisruptionBudget{}, &autoscalingv2.HorizontalPodAutoscaler{}, &networkingv1.NetworkPolicy{}},
		"knative":    {&servingv1.Service{}},
		"kserve":     {&servingRuntime{}, &inferenceService{}},
	} {
		all, err := Decode([]byte(committed(t, platform)))
		require.NoError(t, err, platform)
		require.Len(t, all, len(kinds))
		for i, k := range kinds {
			require.IsType(t, k, all[i])
		}
	}
}

// TestEveryOption decodes what every option changes, names that YAML takes for something else among them.
func TestEveryOption(t *testing.T) {
	changes := map[string]func(o *manifests.Options){
		"nothing":   func(o *manifests.Options) {},
		"names":     func(o *manifests.Options) { o.Name, o.Namespace = "true", "null" },
		"image":     func(o *manifests.Options) { o.Image = "registry:5000/a/b@sha256:" + strings.Repeat("0a", 32) },
		"gRPC":      func(o *manifests.Options) { o.GRPC = true },
		"no delay":  func(o *manifests.Options) { o.DrainDelay = 0 },
		"resources": func(o *manifests.Options) { o.CPU, o.Memory = "500m", "1.5Gi" },
		"one":       func(o *manifests.Options) { o.Replicas, o.MaxReplicas = 1, 1 },
	}
	for _, platform := range manifests.Platforms {
		for name, change := range changes {
			for _, claim := range []string{"", "yes"} {
				o := manifests.Defaults()
				o.Platform, o.Claim = platform, claim
				if platform == "kserve" {
					o.Claim, o.StorageURI = "", "s3://bucket/models#1"
				}
				change(&o)
				var b bytes.Buffer
				require.NoError(t, manifests.Write(&b, o))
				all, err := Decode(b.Bytes())
				require.NoError(t, err, "%s, %s:\n%s", platform, name, b.String())
				for _, a := range all {
					m, ok := a.(metav1.Object)
					require.True(t, ok)
					require.Equal(t, o.Namespace, m.GetNamespace())
					require.True(t, m.GetName() == o.Name || m.GetName() == o.Name+"-pods", m.GetName())
				}
			}
		}
	}
}

// TestBroken has manifests with one mistake each. None decodes.
func TestBroken(t *testing.T) {
	for _, c := range []struct{ platform, old, new string }{
		{"kubernetes", "readinessProbe:", "readinesProbe:"},
		{"kubernetes", "containerPort: 8000", "containerPort: eight"},
		{"kubernetes", `memory: "1Gi"}`, `memory: "1 GB"}`},
		{"kubernetes", "maxReplicas: 8", "maxReplicas: many"},
		{"kubernetes", "maxReplicas: 8", "maxReplicas: 8\n  maxReplicas: 9"},
		{"kubernetes", "averageValue: 20m", "averageValue: 20ms"},
		{"kubernetes", "policy/v1", "policy/v1beta1"},
		{"kubernetes", "sleep: {seconds: 5}", "sleep: 5"},
		{"kubernetes", "policyTypes: [Ingress]", "policyTypes: Ingress"},
		{"kubernetes", "      containers:", "     containers:"},
		{"knative", "timeoutSeconds: 30", "timeoutSeconds: 30s"},
		{"knative", "timeoutSeconds: 30", "timeoutSeconds: -1"},
		{"knative", "containerConcurrency: 0", "containerConcurrency: -1"},
		{"knative", "name: http1,", "name: http,"},
		{"knative", "spec:\n  template:", "spec:\n  templates:"},
		{"knative", `image: "popefgen-serve:latest"`, `image: "popefgen serve"`},
		{"kserve", "supportedModelFormats:", "supportedFormats:"},
		{"kserve", "protocolVersions: [v2]", "protocolVersions: [v3]"},
		{"kserve", "priority: 1", "priority: first"},
		{"kserve", "name: kserve-container", "name: server"},
		{"kserve", "minReplicas: 2", "minReplicas: 9"},
		{"kserve", "scaleMetric: concurrency", "scaleMetric: queue"},
		{"kserve", `storageUri: "pvc://models/models"`, `storageURI: "pvc://models/models"`},
	} {
		t.Run(c.new, func(t *testing.T) {
			good := committed(t, c.platform)
			require.Contains(t, good, c.old)
			_, err := Decode([]byte(strings.Replace(good, c.old, c.new, 1)))
			require.Error(t, err)
		})
	}
}

// TestKubernetesFitsTogether follows the names from one object to the other.
func TestKubernetesFitsTogether(t *testing.T) {
	o := manifests.Defaults()
	o.DrainDelay, o.DrainLimit, o.Claim = 7*time.Second, 20*time.Second, "c"
	var b bytes.Buffer
	require.NoError(t, manifests.Write(&b, o))
	all, err := Decode(b.Bytes())
	require.NoError(t, err)
	d := all[0].(*appsv1.Deployment)
	pod := labels.Set(d.Spec.Template.Labels)
	selects := func(s *metav1.LabelSelector) {
		t.Helper()
		sel, err := metav1.LabelSelectorAsSelector(s)
		require.NoError(t, err)
		require.False(t, sel.Empty())
		require.True(t, sel.Matches(pod))
	}
	selects(d.Spec.Selector)
	require.Nil(t, d.Spec.Replicas, "the autoscaler's number would be set back")
	c := d.Spec.Template.Spec.Containers[0]
	ports := map[string]int32{}
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
		require.Contains(t, c.Args, fmt.Sprintf("--%s=:%d", p.Name, p.ContainerPort))
	}
	for _, p := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		require.Contains(t, ports, p.HTTPGet.Port.String())
	}
	for _, a := range all[1:3] {
		s := a.(*corev1.Service)
		selects(&metav1.LabelSelector{MatchLabels: s.Spec.Selector})
		for _, p := range s.Spec.Ports {
			require.Equal(t, ports[p.TargetPort.String()], p.Port)
		}
	}
	require.Equal(t, "None", all[2].(*corev1.Service).Spec.ClusterIP)
	selects(all[3].(*policyv1.PodDisruptionBudget).Spec.Selector)
	h := all[4].(*autoscalingv2.HorizontalPodAutoscaler)
	require.Equal(t, autoscalingv2.CrossVersionObjectReference{APIVersion: d.APIVersion, Kind: d.Kind, Name: d.Name}, h.Spec.ScaleTargetRef)
	require.Equal(t, int64(20), h.Spec.Metrics[0].Pods.Target.AverageValue.MilliValue())
	n := all[5].(*networkingv1.NetworkPolicy)
	selects(&n.Spec.PodSelector)
	for _, in := range n.Spec.Ingress {
		for _, p := range in.Ports {
			require.Contains(t, ports, p.Port.String())
			require.Equal(t, p.Port.String() == "admin", len(in.From) > 0, "who may come to %s", p.Port)
		}
	}

	sleep := c.Lifecycle.PreStop.Sleep.Seconds
	require.EqualValues(t, 7, sleep)
	require.Contains(t, c.Args, "--drain-limit=20s")
	require.Greater(t, *d.Spec.Template.Spec.TerminationGracePeriodSeconds, sleep+20, "the server would be killed while it drains")
	require.Zero(t, d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue())
	require.True(t, *c.SecurityContext.RunAsNonRoot)
	require.NotZero(t, *d.Spec.Template.Spec.SecurityContext.RunAsUser)
	require.Equal(t, c.VolumeMounts[0].Name, d.Spec.Template.Spec.Volumes[0].Name)
	require.Equal(t, c.Args[len(c.Args)-1], c.VolumeMounts[0].MountPath)
}
