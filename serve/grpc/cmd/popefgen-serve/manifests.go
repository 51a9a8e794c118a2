package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/serve/grpc/internal/manifests"
)

// manifestsCommand writes what container platforms need.
func manifestsCommand() *cli.Command {
	o := manifests.Defaults()
	mistaken := func(err error) error { return usageError{err, "manifests"} }
	return &cli.Command{
		Name:      "manifests",
		Usage:     "write manifests for " + strings.Join(manifests.Platforms, ", "),
		UsageText: "popefgen-serve manifests [flags] PLATFORM",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "name", Usage: "`NAME` of everything that is made", Value: o.Name, Destination: &o.Name},
			&cli.StringFlag{Name: "namespace", Usage: "`NAMESPACE`; without it that in which they are applied", Destination: &o.Namespace},
			&cli.StringFlag{Name: "image", Usage: "`IMAGE` with the command", Value: o.Image, Destination: &o.Image},
			&cli.StringFlag{Name: "claim", Usage: "`NAME` of the PersistentVolumeClaim with the folder of models; without it they are in the image (kubernetes, knative)", Destination: &o.Claim},
			&cli.StringFlag{Name: "storage-uri", Usage: "`URI` of the folder of models, such as pvc://CLAIM/models (kserve, which needs it)", Destination: &o.StorageURI},
			&cli.IntFlag{Name: "replicas", Usage: "`N` servers at least", Value: o.Replicas, Destination: &o.Replicas},
			&cli.IntFlag{Name: "max-replicas", Usage: "`N` servers at most", Value: o.MaxReplicas, Destination: &o.MaxReplicas},
			&cli.StringFlag{Name: "cpu", Usage: "`QUANTITY` of processors of a server", Value: o.CPU, Destination: &o.CPU},
			&cli.StringFlag{Name: "memory", Usage: "`QUANTITY` of memory of a server", Value: o.Memory, Destination: &o.Memory},
			&cli.DurationFlag{Name: "drain-delay", Usage: "`TIME` until nobody sends requests to a server that stops", Value: o.DrainDelay, Destination: &o.DrainDelay},
			&cli.DurationFlag{Name: "drain-limit", Usage: "`TIME` that requests under way have then", Value: o.DrainLimit, Destination: &o.DrainLimit},
			&cli.DurationFlag{Name: "queue-time", Usage: "`TIME` that requests wait on average, above which more servers are started (kubernetes)", Value: o.QueueTime, Destination: &o.QueueTime},
			&cli.IntFlag{Name: "concurrency", Usage: "`N` requests of a server, above which more are started (knative, kserve)", Value: o.Concurrency, Destination: &o.Concurrency},
			&cli.BoolFlag{Name: "grpc", Usage: "send gRPC to the one port that a server has (knative, kserve)", Destination: &o.GRPC},
		},
		OnUsageError: func(_ *cli.Context, err error, _ bool) error { return mistaken(err) },
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return mistaken(fmt.Errorf("manifests: found %q, want one platform after the flags: %s", c.Args().Slice(), strings.Join(manifests.Platforms, ", ")))
			}
			o.Platform = c.Args().First()
			var text bytes.Buffer
			if err := manifests.Write(&text, o); err != nil {
				return mistaken(err)
			}
			_, err := c.App.Writer.Write(text.Bytes())
			return err
		},
	}
}
