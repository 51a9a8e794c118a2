package genrt

import (
	"context"
	"fmt"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/session"
)

// runnerOptions returns what options say.
func runnerOptions(opts []rt.RunnerOption) (*session.Options, error) {
	set := session.Defaults()
	for _, opt := range opts {
		opt.Runner(set)
	}
	o, err := session.OptionsOf(set)
	if err == nil {
		err = checkRunner(o)
	}
	return o, err
}

// checkRunner returns which option has no meaning for a runner.
func checkRunner(o *session.Options) error {
	for i, d := range o.ReplicaDevices {
		if d == nil {
			return fmt.Errorf("WithReplicaDevices: %w: nil device for replica %d", rt.ErrOption, i)
		}
		if i < 0 || i >= o.Replicas {
			return fmt.Errorf("WithReplicaDevices: %w: %s for replica %d of %d", rt.ErrOption, session.DescribeDevice(d), i, o.Replicas)
		}
	}
	switch {
	case o.Device != nil && o.Replicas > 1 && !o.Device.Info().Shared:
		return fmt.Errorf("WithDevice: %w: %d replicas can't share this device; use WithReplicaDevices", rt.ErrOption, o.Replicas)
	case o.DeviceID != nil && o.Replicas > 1:
		return fmt.Errorf("WithDeviceID: %w: %d replicas can't all have the same device; use WithReplicaDevices", rt.ErrOption, o.Replicas)
	}
	if o.Replicas > 1 && o.SingleCaller {
		return fmt.Errorf("SingleCaller: %w: %d replicas are for many callers", rt.ErrOption, o.Replicas)
	}
	return nil
}

// loadModel reads the model from where source or an option says.
func loadModel(ctx context.Context, source Source, o *session.Options) (*popef.Model, error) {
	read := popef.LoadContext
	if o.PrivateCopy {
		read = popef.LoadCopyContext
	}
	switch {
	case source.Model != nil:
		return source.Model, nil
	case len(o.ModelFiles) > 0:
		return read(ctx, o.ModelFiles...)
	case o.ModelBytes != nil:
		return popef.LoadBytes("bytes given to WithModelBytes", o.ModelBytes)
	case source.Bytes != nil:
		return popef.LoadBytes(source.Name, source.Bytes)
	}
	return read(ctx, source.Path)
}
