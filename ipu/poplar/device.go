//go:build poplar && linux && cgo

package poplar

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
)

// Device is one IPU, one group of them, or a simulated one. It implements [ipu.Device].
type Device struct {
	options []ipu.Option
	model   *ipu.Simulation // if it is simulated

	mu     sync.Mutex
	info   ipu.DeviceInfo
	c      *C.plr_device // while it is attached
	loaded *Engine       // that was loaded last
	runs   bool          // a command of loaded is under way
}

// DevicesWith lists the devices that Poplar knows with these device options.
func (b backend) DevicesWith(ctx context.Context, all []ipu.Option) ([]ipu.Device, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o := newOptions(all)
	defer o.free()
	var err C.plr_err
	var infos *C.plr_devinfo
	var n C.size_t
	if err := failure(C.plr_devices(o.c, &infos, &n, &err), &err, "list devices"); err != nil {
		return nil, err
	}
	defer C.plr_free(unsafe.Pointer(infos))
	devices := make([]ipu.Device, n)
	there := unsafe.Slice(infos, n)
	for i := range there {
		devices[i] = &Device{options: slices.Clone(all), info: deviceInfo(&there[i])}
	}
	return devices, nil
}

// Simulate makes a simulated device. Executables of PopEF files were compiled for IPUs, so that it is of use only with the fake.
// The memory of its tiles can't be chosen.
func (backend) Simulate(ctx context.Context, s ipu.Simulation) (ipu.Device, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.BytesPerTile != 0 && s.BytesPerTile != ipu.ArchBytesPerTile {
		return nil, fmt.Errorf("%w: a tile is to have %d bytes, and those of Poplar's simulated devices have %d: leave BytesPerTile 0", ipu.ErrNoDevice, s.BytesPerTile, ipu.ArchBytesPerTile)
	}
	d := &Device{options: s.Options, model: &s}
	c, err := d.open()
	if err != nil {
		return nil, err
	}
	defer C.plr_device_free(c) // Attach makes another one
	if err := d.describe(c); err != nil {
		return nil, err
	}
	return d, nil
}

// open opens the device.
func (d *Device) open() (c *C.plr_device, err error) {
	o := newOptions(d.options)
	defer o.free()
	var cerr C.plr_err
	if m := d.model; m != nil {
		version := C.CString(fmt.Sprintf("ipu%d", m.Version))
		defer C.free(unsafe.Pointer(version))
		code := C.plr_device_model(C.uint32_t(m.NumIPUs), version, C.uint32_t(m.TilesPerIPU), o.c, &c, &cerr)
		return c, failure(code, &cerr, "make a simulated device")
	}
	return c, failure(C.plr_device_open(C.uint32_t(d.info.ID), o.c, &c, &cerr), &cerr, fmt.Sprintf("open device %d", d.info.ID))
}

// describe asks an open device what it is.
func (d *Device) describe(c *C.plr_device) error {
	var info C.plr_devinfo
	var err C.plr_err
	if err := failure(C.plr_device_info(c, &info, &err), &err, fmt.Sprintf("describe device %d", d.info.ID)); err != nil {
		return err
	}
	d.info = deviceInfo(&info)
	return nil
}

// deviceInfo returns what the shim says of a device.
func deviceInfo(c *C.plr_devinfo) ipu.DeviceInfo {
	arch, system := C.GoString(&c.arch[0]), C.GoString(&c.system[0])
	kinds := []string{"ipu", "ipu_model", "cpu"}
	info := ipu.DeviceInfo{
		ID: int(c.id), Backend: Name, Kind: "ipu", NumIPUs: int(c.ipus), TilesPerIPU: int(c.tiles), Version: -1,
		Description: fmt.Sprintf("%s, %d tiles each, %s; Poplar %s%s", arch, c.tiles, system, Version(), untried),
		// Before it is attached a device does not tell; those that are known do support them.
		RemoteBuffers: c.remote_buffers != 0,
	}
	if int(c._type) < len(kinds) {
		info.Kind = kinds[c._type]
	}
	switch arch {
	case "ipu2":
		info.Version = 2
	case "ipu21":
		info.Version = 21
	}
	return info
}

// Info describes the device.
func (d *Device) Info() ipu.DeviceInfo {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.info
}

// Attach tries once to attach.
func (d *Device) Attach() (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.c != nil {
		return true, nil
	}
	c, err := d.open()
	if err != nil {
		return false, err
	}
	var cerr C.plr_err
	var ok C.int32_t
	err = failure(C.plr_device_attach(c, &ok, &cerr), &cerr, fmt.Sprintf("attach device %d", d.info.ID))
	if err == nil && ok != 0 {
		if err = d.describe(c); err == nil {
			d.c = c
			return true, nil
		}
	}
	C.plr_device_free(c)
	return false, err
}

// Detach gives the device back; what is loaded is gone. The error wraps [ipu.ErrBusy] while a program runs on it.
func (d *Device) Detach() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.c == nil {
		return nil
	}
	if d.runs {
		return fmt.Errorf("detach device %d: %w: a program runs on it", d.info.ID, ipu.ErrBusy)
	}
	if d.loaded != nil {
		d.loaded.leave()
	}
	var cerr C.plr_err
	err := failure(C.plr_device_detach(d.c, &cerr), &cerr, fmt.Sprintf("detach device %d", d.info.ID))
	C.plr_device_free(d.c)
	d.c, d.loaded = nil, nil
	return err
}

// begin has an engine begin a command on the device: loading, or running what is loaded.
func (d *Device) begin(e *Engine, load bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.c == nil && load:
		return fmt.Errorf("device %d: %w", d.info.ID, ipu.ErrNotAttached)
	case d.c == nil:
		return fmt.Errorf("%w: device %d was detached", ipu.ErrNotLoaded, d.info.ID)
	case d.runs:
		return fmt.Errorf("device %d: %w: another engine uses it", d.info.ID, ipu.ErrBusy)
	case !load && d.loaded == nil:
		return fmt.Errorf("%w: device %d was detached since", ipu.ErrNotLoaded, d.info.ID)
	case !load && d.loaded != e:
		return fmt.Errorf("%w: another engine was loaded onto device %d since", ipu.ErrNotLoaded, d.info.ID)
	}
	if load {
		if d.loaded != nil && d.loaded != e {
			d.loaded.leave()
		}
		var err C.plr_err
		if err := failure(C.plr_engine_device(e.c, d.c, &err), &err, fmt.Sprintf("device %d", d.info.ID)); err != nil {
			return err
		}
		d.loaded = e
	}
	d.runs = true
	return nil
}

// end ends what begin began.
func (d *Device) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs = false
}

// forget tells that the engine is gone.
func (d *Device) forget(e *Engine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loaded == e {
		d.loaded = nil
	}
}
