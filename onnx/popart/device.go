package popart

import (
	"context"
	"math/bits"

	"github.com/popefgen/popefgen/ipu"
)

// Connection says when a device is attached, as PopART's DeviceConnectionType.
type Connection uint8

// The connection types.
const (
	ConnectAlways   Connection = iota // when it is acquired
	ConnectOnDemand                   // when a session is prepared on it
	ConnectNever                      // not at all: it is offline, to compile for
)

// Device is what a session runs on. It outlives sessions: Close gives it back.
type Device struct {
	of         ipu.Device
	manager    *ipu.Manager
	connection Connection
}

// Info describes the device. The zero DeviceInfo is that of no device.
func (d *Device) Info() ipu.DeviceInfo {
	if d == nil || d.of == nil {
		return ipu.DeviceInfo{}
	}
	return d.of.Info()
}

// Connection returns when the device is attached: ConnectNever for no device.
func (d *Device) Connection() Connection {
	if d == nil {
		return ConnectNever
	}
	return d.connection
}

// Close detaches the device. Closing twice is allowed.
func (d *Device) Close() error {
	if d == nil || d.of == nil {
		return nil
	}
	return fail(ClassRuntime, "close device", d.of.Detach())
}

// CPU returns the CPU as a device, which any number of sessions share.
func CPU() *Device {
	d, err := (&ipu.Manager{}).Get(context.Background(), ipu.Request{Backend: "cpu"})
	if err != nil { // the package imports the back end, which has one device
		return &Device{}
	}
	return &Device{of: d, manager: &ipu.Manager{}}
}

// Devices finds devices, as PopART's DeviceManager. The zero Devices is ready for use, with all back ends that the program imports.
type Devices struct {
	Manager    *ipu.Manager // nil: the registered back ends
	Connection Connection   // of the devices that are acquired
	Wait       ipu.Wait     // while every device that fits is taken
}

func (d *Devices) manager() *ipu.Manager {
	if d.Manager != nil {
		return d.Manager
	}
	return &ipu.Manager{}
}

// Enumerate returns every device that there is, attached or not; none of them is attached by it.
func (d *Devices) Enumerate(ctx context.Context) (all []*Device, err error) {
	err = guard("enumerate devices", func() error {
		found, err := d.manager().Devices(ctx)
		for _, f := range found {
			all = append(all, &Device{f, d.manager(), d.Connection})
		}
		return fail(ClassRuntime, "enumerate devices", err)
	})
	return all, err
}

// AcquireAvailable acquires the first device of that number of IPUs, a power of two, that is free. A CPU stands for any number. The error wraps [ipu.ErrNoDevice] if there
// is none, and names the number.
func (d *Devices) AcquireAvailable(ctx context.Context, ipus int) (*Device, error) {
	return d.acquire(ctx, ipu.Request{NumIPUs: ipus}, func() error {
		if ipus < 1 || bits.OnesCount(uint(ipus)) != 1 {
			return wrong(ErrOption, "%d IPUs, want a power of two", ipus)
		}
		return nil
	})
}

// AcquireByID acquires the device of that id, as Enumerate lists it, of the back end of that name; "" where there is one back end alone. The error names the id.
func (d *Devices) AcquireByID(ctx context.Context, backend string, id int) (*Device, error) {
	r := ipu.Request{Backend: backend}.Specific(id)
	return d.acquire(ctx, r, func() error { return nil })
}

func (d *Devices) acquire(ctx context.Context, r ipu.Request, check func() error) (out *Device, err error) {
	err = guard("acquire a device", func() error {
		if err := check(); err != nil {
			return err
		}
		r.Wait = d.Wait
		found, err := d.manager().Get(ctx, r)
		if err != nil {
			return fail(ClassRuntime, "acquire a device", err)
		}
		if d.Connection != ConnectAlways {
			if err := found.Detach(); err != nil {
				return fail(ClassRuntime, "acquire a device", err)
			}
		}
		out = &Device{found, d.manager(), d.Connection}
		return nil
	})
	return out, err
}

// IPUModel makes a simulated device, of this caller alone: PopART's createIpuModelDevice, whose options [ParseIPUModel] reads. The CPU simulates: it computes as
// it does elsewhere, and refuses what is too large for so many tiles ([ipu.ErrMemory]). The error wraps [ipu.ErrNoDevice] if no back end simulates.
func (d *Devices) IPUModel(ctx context.Context, s ipu.Simulation) (out *Device, err error) {
	err = guard("make a simulated device", func() error {
		made, err := d.manager().Simulate(ctx, s)
		if err != nil {
			return fail(ClassRuntime, "make a simulated device", err)
		}
		out = &Device{made, d.manager(), ConnectAlways}
		return nil
	})
	return out, err
}
