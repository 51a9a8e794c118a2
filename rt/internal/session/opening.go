package session

import (
	"maps"
	"slices"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/settings"
)

// Options are what a session is made with.
type Options struct {
	rt.Config
	Members bool     // a request runs one of the main programs, see [Session.Choose]
	Main    []uint32 // main programs that requests run; nil: those of the program flow
	read    *content
}

// content is what has been read of a model's files, so that replicas have it in
// common where the files are not mapped into memory too.
type content struct {
	executable []byte
	tensors    map[string][]byte
}

// Defaults returns what holds without options.
func Defaults() *settings.Of[rt.Config] {
	return &settings.Of[rt.Config]{Config: rt.Config{Manager: &ipu.Manager{}, Replicas: 1, MaxWaiting: -1, Logger: environmentLogger()}}
}

// OptionsOf returns what was set, with the first bad value or which options
// contradict each other.
func OptionsOf(o *settings.Of[rt.Config]) (*Options, error) {
	c := &o.Config
	switch {
	case c.Device != nil && c.Deferred:
		o.Fail("Deferred: %w: it goes with Bind, not with WithDevice", rt.ErrOption)
	case (c.Device != nil || c.Deferred) && o.Narrowed != "":
		o.Fail("%s: %w: no device is looked for", o.Narrowed, rt.ErrOption)
	case c.Simulation != nil && (c.DeviceID != nil || c.Wait != ipu.Wait{}):
		o.Fail("WithSimulation: %w: no device is looked for, so that WithDeviceID and WithWait have no meaning", rt.ErrOption)
	}
	return &Options{Config: o.Config, read: &content{tensors: map[string][]byte{}}}, o.Err
}

// CloneConfig returns a copy that nobody else has slices of, but for data.
func CloneConfig(c *rt.Config) rt.Config {
	d := *c
	d.ModelFiles, d.Frozen = slices.Clone(c.ModelFiles), slices.Clone(c.Frozen)
	d.DeviceOptions, d.EngineOptions = slices.Clone(c.DeviceOptions), slices.Clone(c.EngineOptions)
	d.ReplicaDevices = maps.Clone(c.ReplicaDevices)
	if c.Simulation != nil {
		m := *c.Simulation
		m.Options = slices.Clone(m.Options)
		d.Simulation = &m
	}
	if c.DeviceID != nil {
		id := *c.DeviceID
		d.DeviceID = &id
	}
	return d
}
